"""A manifest, and what has changed."""

import hashlib
import json


def file_digest(data):
    return hashlib.sha256(data).hexdigest()


def meaning_digest(value):
    return file_digest(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def meaning(name, data):
    if not name.endswith(".json"):
        return None
    try:
        return meaning_digest(json.loads(data))
    except ValueError:
        return None


def manifest(files):
    return {
        name: {"bytes": len(data), "sha256": file_digest(data), "meaning": meaning(name, data)}
        for name, data in sorted(files.items())
    }


def changes(old, new):
    found = []
    for name in sorted({*old, *new}):
        if name not in new:
            found.append([name, "missing"])
        elif name not in old:
            found.append([name, "added"])
        elif old[name]["sha256"] != new[name]["sha256"]:
            found.append([name, "size" if old[name]["bytes"] != new[name]["bytes"] else "content"])
            one, other = old[name]["meaning"], new[name]["meaning"]
            if one and other and one != other:
                found[-1].append("meaning")
    return found

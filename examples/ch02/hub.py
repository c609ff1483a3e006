"""A model folder from the Hugging Face hub: config, tokenizer and safetensors files of one commit, and nothing else."""

import contextlib
import io
import os
import re
from pathlib import Path

from examples.lab.environment import bad_variable, sha256
from examples.lab.script import BadInput

FILES = [
    *("config.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
]
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


def fetch(source: str) -> tuple[Path, str]:
    """(folder, commit) of a hub id `owner/name[@revision]`, from the cache where it is there already.

    All files come from one commit, the one that the revision (`main` without one) names now. `HF_ENDPOINT`, `HF_HOME`,
    `HF_HUB_OFFLINE` and its other variables mean what they mean to huggingface_hub. Raises BadInput for each way in which this can
    fail.
    """
    repo, _, revision = source.partition("@")
    try:
        folder = Path(_download(repo, revision or None))
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(_explain(error, repo, revision)) from error
    _check_digests(folder, repo)
    return folder, folder.name


def _download(repo, revision):
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # where it says before what is wrong
            from huggingface_hub import snapshot_download
            from huggingface_hub.utils import disable_progress_bars, logging
    except ValueError as error:
        raise bad_variable(error) from None

    logging.set_verbosity_error()
    if not os.isatty(2):
        disable_progress_bars()
    return snapshot_download(repo, revision=revision, allow_patterns=FILES)


def _explain(error, repo, revision):
    """One line for what huggingface_hub raised, or for the first cause of it that is known."""
    from huggingface_hub import errors

    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    at = f"{repo}@{revision}" if revision else repo
    known = [
        (errors.GatedRepoError, f"{at} is gated: accept its terms on the hub, then set HF_TOKEN to a token of yours"),
        (errors.RevisionNotFoundError, f"{repo} has no revision {revision!r}; look it up on the hub, or leave it out"),
        (
            errors.RepositoryNotFoundError,
            f"there is no model {repo} on the hub, or it is private: check the spelling, or set HF_TOKEN",
        ),
        (errors.HFValidationError, f"{repo!r} is not a hub id; give owner/name"),
        (errors.OfflineModeIsEnabled, f"{at} is not in the cache and {_offline()} is set; unset it, or give a folder"),
    ]
    for kind, text in known:
        if any(isinstance(e, kind) for e in chain):
            return text
    status = next((e.response.status_code for e in chain if getattr(e, "response", None) is not None), None)
    if status in (401, 403):
        return f"the hub refuses {at} (HTTP {status}); set HF_TOKEN to a token that may read it"
    if status == 404:
        return f"there is no model {at} on the hub (HTTP 404); check the spelling"
    if status is not None:
        return f"the hub answered HTTP {status} for {at}; try again later, what was fetched is kept"
    names, text = {type(e).__name__ for e in chain}, f"{type(chain[-1]).__name__}: {chain[-1]}"
    unwritable = next((e for e in chain if isinstance(e, PermissionError)), None)
    if unwritable:
        return f"the hub's cache cannot be written ({unwritable}); set HF_HOME to a folder of yours"
    if names & {"UnsupportedProtocol", "InvalidURL"}:
        return f"HF_ENDPOINT is {os.environ.get('HF_ENDPOINT')!r}, which is no address; set it to https://... or unset it"
    if names & {"RemoteProtocolError", "ReadError", "ReadTimeout"} or any("onsistency" in str(e) for e in chain):
        return f"the download of {at} was interrupted; run the same command again ({text})"
    if names & {"ConnectError", "ConnectTimeout", "LocalEntryNotFoundError"}:
        return f"{at} is not in the cache and the hub cannot be reached; go online, or give a folder or the embedded model ({text})"
    return f"{at} could not be fetched; give a folder instead ({text})"


def _offline():
    """The variable that keeps huggingface_hub from the network: there are two."""
    return next((n for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(n)), "HF_HUB_OFFLINE")


def _check_digests(folder, repo):
    """Raise BadInput when a weight file is not the one the hub names: its cache calls such a file by its sha256."""
    for path in sorted(folder.glob("*.safetensors")):
        blob = path.resolve()
        if re.fullmatch(r"[0-9a-f]{64}", blob.name) and sha256(blob) != blob.name:
            raise BadInput(f"{path.name} of {repo} is damaged, its sha256 is not the hub's; delete {blob} and run again")

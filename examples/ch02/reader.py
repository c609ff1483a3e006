"""The fields of one `config.json`, each checked as it is read, and none passed over in silence.

A family's function in `families.py` takes the fields that it knows from a `Reader`; at the end `finish` refuses every field that
was not read and could change a result.
"""

import re

from examples.ch02.ropes import ROPE_KINDS, rope_from
from examples.lab.script import BadInput

# Fields that cannot change a logit, whatever they say.
CANNOT_MATTER = re.compile(
    r".*(dropout|pdrop|layerdrop).*|initializer_.*|init_std|gradient_checkpointing|router_(aux|jitter|z)_.*|aux_loss_alpha|seq_aux"
    r"|.*_token_ids?|.*label.*|summary_.*|task_specific_params|problem_type|finetuning_task|n_special|predict_special_tokens"
    r"|_.*|architectures|model_type|auto_map|name_or_path|tokenizer_class|transformers.*|torch_dtype|dtype|unsloth_.*|is_llama_config"
    r"|use_cache|cache_implementation|output_.*|return_.*|torchscript|chunk_size_feed_forward|quantization_config"
    r"|pretraining_tp|ep_size|n_ctx|num_nextn_predict_layers|offset_alibi|bias_dropout_fusion|skip_bias_add(_qkv)?"
    r"|masked_softmax_fusion|(scale_)?attention_softmax_in_fp32|inference_runner|validate_runner_input|pre_allocate_kv_cache"
    r"|(runner_)?max_(sequence|batch)_(length|size)|pad_key_length|attn_implementation|is_decoder"
    # and what steers generation, which old files have here
    r"|(max|min)_(length|new_tokens)|do_sample|temperature|top_[kp]|typical_p|num_(beams|beam_groups|return_sequences)|prefix"
    r"|(diversity|repetition|length|exponential_decay_length)_penalty|.*no_repeat_ngram_size|bad_words_ids|early_stopping"
    r"|(begin_)?suppress_tokens|remove_invalid_values"
)


class Reader:
    """The fields of one `config.json`, each checked as it is read; `where` names the file in errors."""

    def __init__(self, values, where):
        self.values, self.where, self.seen = values, where, set()

    def bad(self, name, wanted):
        return BadInput(f"{self.where}: {name} is {repr(self.values.get(name))[:40]}, not {wanted}; correct config.json")

    def get(self, *names, default=...):
        """The value under any of `names`, which may not differ; without a default one must stand there and not be null."""
        self.seen |= set(names)
        there = [n for n in names if self.values.get(n) is not None]
        if not there and default is ...:
            raise BadInput(f"{self.where} lacks {names[0]}; give the whole config.json")
        for other in there[1:]:
            if self.values[other] != self.values[there[0]]:
                two = f"{there[0]} is {repr(self.values[there[0]])[:40]} and {other} is {repr(self.values[other])[:40]}"
                raise BadInput(f"{self.where}: {two}, and these are two names of one thing; correct one")
        return self.values[there[0]] if there else default

    def whole(self, *names, default=..., most=10**9):
        value = self.get(*names, default=default)
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise self.bad(next((n for n in names if n in self.values), names[0]), f"a whole number from 1 to {most:,}")
        return value

    def number(self, *names, default=...):
        value = self.get(*names, default=default)
        # JSON has whole numbers that no float holds
        if value is not None and (type(value) not in (int, float) or not 0 < value < 1e300):
            raise self.bad(names[0], "a number above 0 and below 1e300")
        return None if value is None else float(value)

    def layers(self, name, default, most=10**9):
        """A number of layers, which may be none of them."""
        value = self.get(name, default=default)
        if type(value) is not int or not 0 <= value <= most:
            raise self.bad(name, f"a number of layers up to {most}")
        return value

    def which_layers(self, name, n_layer):
        """Numbers of layers, counted from 0; () where the field is not there or empty."""
        value = self.get(name, default=[])
        if not isinstance(value, list) or not all(type(i) is int and 0 <= i < n_layer for i in value):
            raise self.bad(name, f"a list of layers, 0 to {n_layer - 1}")
        return tuple(value)

    def flag(self, name, default, null=...):
        """True or false; null: what a null means. Where that is not said, there may not be one."""
        value = self.get(name, default=default)
        if name in self.values and self.values[name] is None:
            value = null
        if type(value) is not bool:
            raise self.bad(name, "true or false")
        return value

    def one_of(self, name, known, default=...):
        """`known` at the field's value: {their word: ours}."""
        value = self.get(name, default=default)
        if not isinstance(value, str) or value not in known:
            raise BadInput(f"{self.where}: {name} is {repr(value)[:40]}; known here are {', '.join(known)}")
        return known[value]

    def only(self, **fields):
        """Refuse a field, unless it has one of the values with which it says what is computed here anyway."""
        for name, harmless in fields.items():
            if self.get(name, default=None) not in (None, *harmless):
                raise self.unknown(name)

    def not_null(self, *names):
        """Refuse a null where the library would not take its default for it."""
        for name in names:
            if name in self.values and self.values[name] is None:
                raise self.bad(name, "a number")

    def passed_over(self, *names):
        """Fields that say nothing in the place where they stand, as the library has it too."""
        self.seen |= set(names)

    def unknown(self, name):
        kind, value = self.values.get("model_type"), repr(self.values[name])[:40]
        what = f"{name} {value} may change the computation, and is not known here of a {kind}"
        return BadInput(f"{self.where}: {what}; take another model, or the field out if it says nothing")

    def finish(self):
        """Refuse what was neither read nor cannot matter; what is null, false or empty says that something is not there."""
        for name, value in self.values.items():
            says_nothing = value is None or value is False or value in ({}, [], "")
            if name not in self.seen and not says_nothing and not CANNOT_MATTER.fullmatch(name):
                raise self.unknown(name)

    def rope(self, kinds=(), theta=10000.0, values=None):
        self.seen |= {"rope_parameters", "rope_scaling", "rope_theta", "original_max_position_embeddings"}
        return rope_from(self.values if values is None else values, self.where, (*ROPE_KINDS, *kinds), theta)

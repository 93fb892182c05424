"""The widened models: as many channels as asked for, the tiny models' text and drafts; or random weights."""

import json
import tempfile
import unittest
from pathlib import Path

import make_wide_models
import torch
from safetensors.torch import load_file
from tiny import eagle3, llama

from standin.check_models import make

TIMES = 4


def widen(tiny: Path, out: Path, *more: str) -> dict:
    words = ("--tiny", str(tiny), "--out", str(out), "--hidden", str(32 * TIMES), *more)
    make_wide_models.main(words)
    return json.loads((out / "models.json").read_text())


def loaded(folder: Path) -> tuple[llama.Llama, eagle3.Draft]:
    target = llama.Llama(make_wide_models.shape_of(folder))
    target.load_state_dict(load_file(folder / "target" / "model.safetensors"))
    draft = eagle3.Draft(target)
    weights = load_file(folder / "eagle3" / "model.safetensors")
    draft.load_state_dict({n: w for n, w in weights.items() if n not in ("d2t", "t2d")})
    return target, draft


class Wide(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory()
        cls.tiny = Path(cls.root.name, "tiny")
        make(cls.tiny)

    @classmethod
    def tearDownClass(cls):
        cls.root.cleanup()

    def test_same_logits_and_guesses(self):
        out = Path(self.root.name, "wide")
        widen(self.tiny, out, "--dtype", "float32")
        (narrow, narrow_draft), (wide, wide_draft) = loaded(self.tiny), loaded(out)
        tokens = torch.randint(0, 300, (2, 12), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            logits, entering = narrow(tokens)
            wide_logits, wide_entering = wide(tokens)
            torch.testing.assert_close(wide_logits, logits)
            layers = eagle3.captured_layers(narrow.shape.layers)
            guesses = [
                draft(tokens, torch.cat([states[i] for i in layers], -1)[:, :9], 3)
                for draft, states in ((narrow_draft, entering), (wide_draft, wide_entering))
            ]
        for mine, theirs in zip(*guesses, strict=True):
            torch.testing.assert_close(theirs, mine)

    def test_what_is_written(self):
        out = Path(self.root.name, "plain")
        record = widen(self.tiny, out)
        config, narrow = (json.loads((x / "target" / "config.json").read_text()) for x in (out, self.tiny))
        for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
            self.assertEqual(config[key], TIMES * narrow[key], key)
        for key in ("vocab_size", "head_dim", "num_hidden_layers", "rope_theta"):
            self.assertEqual(config[key], narrow[key], key)
        self.assertEqual(config["dtype"], "bfloat16")
        draft = json.loads((out / "eagle3" / "config.json").read_text())
        self.assertEqual(draft["target_hidden_size"], 32 * TIMES)
        self.assertEqual(load_file(out / "eagle3" / "model.safetensors")["fc.weight"].dtype, torch.bfloat16)
        self.assertEqual(record["settings"]["hidden"], 32 * TIMES)
        tokenizers = [(x / "target" / "tokenizer.json").read_bytes() for x in (out, self.tiny)]
        self.assertEqual(*tokenizers)
        self.assertFalse(Path(self.root.name, "plain.partial").exists())

    def test_random_weights_follow_their_seed(self):
        sums = [
            widen(self.tiny, Path(self.root.name, f"random-{n}"), "--seed", seed)["target"]["weights_sha256"]
            for n, seed in enumerate(("1", "1", "2"))
        ]
        self.assertEqual(sums[0], sums[1])
        self.assertNotEqual(sums[0], sums[2])
        target, _ = loaded(Path(self.root.name, "random-0"))
        with torch.no_grad():
            text = target.continued(torch.tensor([[5, 6, 7]]), 60)
        self.assertGreater(len(set(text[0].tolist())), 20)

    def test_widths_that_are_no_multiple_are_refused(self):
        for hidden in ("32", "100"):
            with self.assertRaises(SystemExit):
                make_wide_models.arguments(["--tiny", str(self.tiny), "--out", "x", "--hidden", hidden])

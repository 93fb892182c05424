"""The tiny models: what is learnt from, what is written, and that a draft drafts as it was trained."""

import hashlib
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import make_tiny_models
import torch
from safetensors.torch import load_file
from tiny import conversations, corpus, eagle3, export, llama, training

SMALL = {
    "--hidden": 32, "--heads": 4, "--vocab": 300, "--corpus-chars": 5000, "--own-texts": 4,
    "--train-steps": 3, "--draft-steps": 2, "--length": 32, "--batch": 2,
}  # fmt: skip


def make(folder: Path, *more: str) -> dict:
    make_tiny_models.main(["--out", str(folder), *(str(x) for pair in SMALL.items() for x in pair), *more])
    return json.loads((folder / "models.json").read_text())


class Corpus(unittest.TestCase):
    def test_prose_without_line_breaks_rules_and_repetition(self):
        texts = corpus.paragraphs(60_000)
        self.assertGreater(len(texts), 100)
        self.assertEqual(len(texts), len(set(texts)))
        for text in texts:
            self.assertNotRegex(text, r"\s\s|\n|---|===|\*\*\*\*")

    def test_nothing_is_out_of_vocabulary(self):
        tokenizer = corpus.train_tokenizer(corpus.paragraphs(5_000), 300)
        for text in ("plain words", "tabs\tand\nlines", "Grüße, 你好"):
            self.assertEqual(tokenizer.decode(tokenizer.encode(text).ids), text)


class Conversations(unittest.TestCase):
    def test_known_passages_answer_any_question_in_the_servers_form(self):
        texts = corpus.paragraphs(5_000)
        made = conversations.conversations(texts, 20, seed=1)
        self.assertEqual(made, conversations.conversations(texts, 20, seed=1))
        self.assertNotEqual(made, conversations.conversations(texts, 20, seed=2))
        lines = made.splitlines()
        self.assertEqual(len(lines), 40)
        around = " ".join(texts * 2)
        for question, answer in zip(lines[::2], lines[1::2], strict=True):
            self.assertTrue(question.startswith("user: ") and answer.startswith("assistant: "))
            said = answer.removeprefix("assistant: ")
            self.assertGreaterEqual(len(said), conversations.ANSWER_CHARACTERS)
            self.assertIn(said, around)
            self.assertTrue(4 <= len(question.split()) - 1 <= 40)
            self.assertLessEqual(set(question.split()[1:]), set(around.split()))

    def test_a_question_ends_where_the_answer_begins(self):
        (prompt,) = export.as_served(make_tiny_models.PROMPTS, 1)
        asked = json.loads(make_tiny_models.PROMPTS.read_text().splitlines()[0])["prompt"]
        self.assertEqual(prompt, f"user: {asked}\nassistant: ")
        self.assertEqual(export.rendered([asked, "so"]), f"{prompt}so\n")


class Models(unittest.TestCase):
    def test_files_record_and_reproducibility(self):
        with tempfile.TemporaryDirectory() as root:
            first, again = Path(root, "a"), Path(root, "b")
            record = make(first)
            self.assertEqual(sorted(p.name for p in first.iterdir()), ["eagle3", "models.json", "target"])
            self.assertFalse(Path(root, "a.partial").exists())
            for name in ("target", "eagle3"):
                weights = (first / name / "model.safetensors").read_bytes()
                self.assertEqual(record[name]["weights_sha256"], hashlib.sha256(weights).hexdigest())
                self.assertTrue((first / name / "tokenizer.json").exists())
            self.assertEqual(len(record["eagle3"]["agreement_per_depth"]), record["settings"]["depths"])
            self.assertTrue(1 <= record["eagle3"]["tokens_per_cycle"] <= make_tiny_models.JUDGED_STEPS + 1)
            other = make(again)
            self.assertEqual(other["target"]["weights_sha256"], record["target"]["weights_sha256"])
            self.assertEqual(other["eagle3"]["weights_sha256"], record["eagle3"]["weights_sha256"])
            spoken = make(again, "--conversations", "20")
            self.assertNotEqual(spoken["corpus"]["sha256"], record["corpus"]["sha256"])
            self.assertNotEqual(spoken["target"]["weights_sha256"], record["target"]["weights_sha256"])
            # A second run into the same folder replaces it.
            replaced = make(first, "--seed", "2")
            self.assertNotEqual(replaced["target"]["weights_sha256"], record["target"]["weights_sha256"])

    def test_the_draft_reads_what_its_config_says(self):
        with tempfile.TemporaryDirectory() as root:
            make(Path(root, "m"), "--layers", "5")
            config = json.loads(Path(root, "m/eagle3/config.json").read_text())
            weights = load_file(Path(root, "m/eagle3/model.safetensors"))
            self.assertEqual(config["architectures"], ["LlamaForCausalLMEagle3"])
            # States that enter layers 1, 2 and 4 leave layers 0, 1 and 3.
            self.assertEqual(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"], [0, 1, 3])
            self.assertEqual(weights["fc.weight"].shape, (32, 96))
            self.assertEqual(weights["midlayer.self_attn.q_proj.weight"].shape, (32, 64))
            self.assertTrue(weights["t2d"].all())

    def test_text_continued_step_by_step_is_the_text_of_whole_passes(self):
        torch.manual_seed(0)
        model = llama.Llama(llama.Shape(vocab=50, hidden=16, layers=4, heads=4, kv_heads=2))
        for parameter in model.parameters():  # larger than at the start, so that no two tokens come close
            parameter.data.mul_(6)
        start = torch.randint(0, 50, (3, 4))
        tokens = start
        with torch.no_grad():
            for _ in range(12):
                tokens = torch.cat((tokens, model(tokens)[0][:, -1:].argmax(-1)), 1)
        torch.testing.assert_close(model.continued(start, 16), tokens)

    def test_own_text_may_start_from_shuffled_prompts(self):
        torch.manual_seed(0)
        target = llama.Llama(llama.Shape(vocab=50, hidden=16, layers=4, heads=4, kv_heads=2))
        tokens = torch.arange(400) % 50
        plain, half = (
            training.own_text(target, tokens, texts=4, length=30, seed=1, shuffled=share).view(4, 30)
            for share in (0.0, 0.5)
        )
        prompt = training.OWN_TEXT_PROMPT
        self.assertTrue(torch.equal(plain[2:], half[2:]))
        self.assertFalse(torch.equal(plain[:2, :prompt], half[:2, :prompt]))
        words = [x[:2, :prompt].flatten().sort().values for x in (plain, half)]
        self.assertTrue(torch.equal(*words))

    def test_own_text_written_in_portions_is_the_same_text(self):
        torch.manual_seed(0)
        target = llama.Llama(llama.Shape(vocab=50, hidden=16, layers=4, heads=4, kv_heads=2))
        for parameter in target.parameters():  # no two tokens come close
            parameter.data.mul_(6)
        tokens = torch.arange(400) % 50
        with mock.patch.object(training, "OWN_TEXTS_AT_ONCE", 3):
            portions = training.own_text(target, tokens, texts=7, length=30, seed=1)
        whole = training.own_text(target, tokens, texts=7, length=30, seed=1)
        self.assertTrue(torch.equal(portions, whole))

    def test_tokens_per_cycle_are_those_of_drafting_cycle_by_cycle(self):
        torch.manual_seed(0)
        target = llama.Llama(llama.Shape(vocab=12, hidden=16, layers=4, heads=4, kv_heads=2))
        for parameter in target.parameters():
            parameter.data.mul_(6)
        draft = eagle3.Draft(target)
        prompt, new, steps = [3, 1, 4, 1, 5], 40, 3
        answer = target.continued(torch.tensor([prompt]), len(prompt) + new + steps)
        known, cycles, kept = len(prompt) + 1, 0, 0
        with torch.no_grad():
            while known < len(prompt) + new:
                _, entering = target(answer[:, : known - 1])  # a server has no states of later tokens
                layers = eagle3.captured_layers(target.shape.layers)
                captured = torch.cat([entering[layer] for layer in layers], -1)
                right = 0
                while right < steps:
                    # A deeper guess reads the ones before, which were right: the target's own tokens.
                    guess = draft(answer[:, 1 : known + right], captured, right + 1)[right][0, -1].argmax()
                    if guess != answer[0, known + right]:
                        break
                    right += 1
                known, cycles, kept = known + right + 1, cycles + 1, kept + right
        found = training.tokens_per_cycle(draft, target, prompt, new, steps)
        self.assertAlmostEqual(found, (known - len(prompt) - 1) / cycles)
        self.assertGreater(kept, 0)

    def test_a_deeper_guess_depends_on_the_tokens_up_to_its_depth_only(self):
        torch.manual_seed(0)
        target = llama.Llama(llama.Shape(vocab=50, hidden=16, layers=4, heads=4, kv_heads=2))
        draft = eagle3.Draft(target)
        tokens, captured = torch.randint(0, 50, (1, 9)), torch.randn(1, 6, 48)
        with torch.no_grad():
            before = draft(tokens, captured, 3)
            changed = tokens.clone()
            changed[0, 7] = (changed[0, 7] + 1) % 50  # read by column 5 at depth 2 (and by no other)
            after = draft(changed, captured, 3)
        self.assertTrue(torch.equal(before[0], after[0]))
        self.assertTrue(torch.equal(before[1], after[1]))
        self.assertTrue(torch.equal(before[2][:, :5], after[2][:, :5]))
        self.assertFalse(torch.equal(before[2][:, 5], after[2][:, 5]))

    def test_a_text_shorter_than_an_excerpt_is_refused_in_one_line(self):
        with (
            tempfile.TemporaryDirectory() as root,
            self.assertRaisesRegex(SystemExit, "--length: the text has"),
        ):
            make(Path(root, "m"), "--corpus-chars", "1", "--length", "1000")

    def test_fewer_than_four_layers_are_refused(self):
        with self.assertRaises(SystemExit):
            make_tiny_models.arguments(["--out", "x", "--layers", "3"])
        with self.assertRaisesRegex(ValueError, "4 or more"):
            eagle3.captured_layers(3)

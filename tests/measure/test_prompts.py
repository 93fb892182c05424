import json
from collections import Counter

import pytest

from quietgate.errors import BadInput
from quietgate.measure import prompts

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(folder, *entries, name="p.jsonl"):
    path = folder / name
    path.write_text("\n".join(e if isinstance(e, str) else json.dumps(e) for e in entries))
    return path


def model(folder, template=CHATML, **config):
    folder = folder / "model"
    folder.mkdir()
    config = {"bos_token": {"content": "<s>"}, "chat_template": template, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_the_own_set():
    found = prompts.load()
    assert len(found) == 24
    assert set(Counter(p.category for p in found).values()) == {4}
    assert len({p.id for p in found}) == len({p.text for p in found}) == 24
    # The first few already cover every category: a short study takes only those.
    assert len({p.category for p in found[:6]}) == 6


KINDS = [
    ({"prompt": "Hi"}, "Hi"),
    ({"messages": [{"role": "user", "content": "Hi"}]}, "Hi"),
    ({"body": {"messages": [{"role": "user", "content": "Hi"}]}, "custom_id": "c"}, "Hi"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}, "Hi"),
    (
        {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
            ]
        },
        "Be kind.\n\nHi",
    ),
    (
        {
            "conversations": [
                {"from": "gpt", "value": "left over"},
                {"from": "human", "value": "Hi"},
                {"from": "gpt", "value": "Hello."},
                {"from": "human", "value": "Bye"},
            ]
        },
        "Hi",
    ),
    ({"question_id": 81, "category": "writing", "turns": ["Hi", "More"]}, "Hi"),
]


@pytest.mark.parametrize(("entry", "text"), KINDS)
def test_kinds_are_seen_from_their_keys(tmp_path, entry, text):
    (found,) = prompts.load(write(tmp_path, entry))
    assert found.text == text
    assert found.text[found.body_at :].startswith("Hi")


def test_names_categories_blank_lines_and_repeated_texts(tmp_path):
    path = write(
        tmp_path,
        {"id": "a", "category": "code", "prompt": "one"},
        "",
        {"question_id": 7, "turns": ["two"]},
        {"prompt": "one"},
        {"prompt": "three"},
    )
    found = [(p.id, p.category) for p in prompts.load(path)]
    assert found == [("a", "code"), ("7", "other"), ("4", "other")]


def test_a_json_array_is_taken_too(tmp_path):
    path = tmp_path / "share.json"
    path.write_text(json.dumps([{"conversations": [{"from": "human", "value": "Hi"}]}]))
    assert [p.text for p in prompts.load(path)] == ["Hi"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{oops", "not JSON"),
        ("3", "an object with"),
        ({"question": "Hi"}, "it has: question"),
        ({"prompt": ""}, "a text is needed"),
        ({"prompt": 4}, "a text is needed"),
        ({"messages": []}, "at least one entry"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]: an object with role and content"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "role 'robot'"),
        ({"messages": [{"role": "system", "content": "Hi"}]}, "nobody asks"),
        ({"conversations": "Hi"}, "a list is needed"),
        ('{"prompt": "\\ud800"}', "surrogate"),
        ({"messages": ["Hi"]}, r"messages\[0\]: an object with role and content"),
        (
            {
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": None, "tool_calls": [{}]},
                    {"role": "tool", "content": "4"},
                    {"role": "user", "content": "So?"},
                ]
            },
            r"messages\[1\]: calls of tools cannot be sent",
        ),
        ({"conversations": ["Hi"]}, r"conversations\[0\]"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text"),
        ({"id": "a", "prompt": "again"}, "id 'a' is taken by .*:1"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path, line, says):
    path = write(tmp_path, {"id": "a", "prompt": "Good"}, line)
    with pytest.raises(BadInput, match=says) as error:
        prompts.load(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert "\n" not in str(error.value)


def test_share_gpt_entries_without_a_question_are_left_out(tmp_path):
    """As it is handed round, the set holds empty conversations and such that an answer ends."""
    told = [
        [],
        [{"from": "gpt", "value": "Hi"}],
        [{"from": "human", "value": ""}, {"from": "gpt", "value": "?"}],
        [{"from": "system", "value": ""}, {"from": "human", "value": "Hi"}],
        [
            {"from": "system", "value": "Be kind."},
            {"from": "gpt", "value": "Hello."},
            {"from": "human", "value": "Ho"},
        ],
    ]
    found = prompts.load(write(tmp_path, *({"id": str(i), "conversations": c} for i, c in enumerate(told))))
    assert [(p.id, p.text) for p in found] == [("3", "Hi"), ("4", "Be kind.\n\nHo")]
    with pytest.raises(BadInput, match="no prompt in it"):
        prompts.load(write(tmp_path, {"conversations": []}))


def test_answers_behind_the_last_question_need_be_no_texts(tmp_path):
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    asked = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}, called]
    (found,) = prompts.load(write(tmp_path, {"messages": asked}), model(tmp_path))
    assert found.text.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>")


def test_an_empty_system_message_reaches_the_template_and_nothing_else(tmp_path):
    empty = [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]
    path = write(tmp_path, {"messages": empty})
    assert prompts.load(path)[0].text == "Hi"
    assert prompts.load(path, model(tmp_path))[0].text.startswith("<|im_start|>system\n<|im_end|>\n")


def test_files_of_other_editors(tmp_path):
    """A byte-order mark, carriage returns, and line separators inside a text."""
    path = tmp_path / "p.jsonl"
    path.write_bytes('\ufeff{"prompt": "one\u2028and\x85more"}\r\n\r\n{"prompt": "two"}\r\n'.encode())
    assert [p.text for p in prompts.load(path)] == ["one\u2028and\x85more", "two"]
    path.write_bytes('\ufeff[{"prompt": "one"}]'.encode())
    assert [p.text for p in prompts.load(path)] == ["one"]


def test_a_conversation_that_the_template_refuses_is_named(tmp_path):
    strict = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    twice = {"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "Ho"}]}
    path = write(tmp_path, {"prompt": "Good"}, twice)
    with pytest.raises(BadInput, match="roles must alternate") as error:
        prompts.load(path, model(tmp_path, strict))
    assert str(error.value).startswith(f"{path}:2: ")


def test_bad_files(tmp_path):
    with pytest.raises(BadInput, match="no such prompts file"):
        prompts.load(tmp_path / "missing.jsonl")
    with pytest.raises(BadInput, match="no prompt in it"):
        prompts.load(write(tmp_path, ""))
    (tmp_path / "b.jsonl").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(BadInput, match="UTF-8"):
        prompts.load(tmp_path / "b.jsonl")


def test_the_models_own_template(tmp_path):
    path = write(tmp_path, {"prompt": " Hi there"})
    (found,) = prompts.load(path, model(tmp_path))
    # The server's tokenizer adds the begin-of-text token itself.
    assert found.text == "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n"
    assert found.text[found.body_at :].startswith("Hi there")
    (off,) = prompts.load(path, tmp_path / "model", chat_template="off")
    assert off.text == " Hi there"


def test_a_template_file_of_its_own_comes_first(tmp_path):
    folder = model(tmp_path, "from the config")
    (folder / "chat_template.jinja").write_text("own {{ messages[0].content }}")
    (found,) = prompts.load(write(tmp_path, {"prompt": "Hi"}), folder)
    assert found.text == "own Hi"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hi"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "Hi"}]'),
        ("{% for m in messages %}{% if loop.index %}{{ m.content }}{% break %}{% endif %}{% endfor %}", "Hi"),
        ("{{ strftime_now('%Y') }} {{ messages[0].content }}", "2026 Hi"),
        ([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "d"}], "d"),
        (None, "Hi"),
    ],
)  # fmt: skip
def test_what_templates_use(tmp_path, template, text):
    folder = model(tmp_path, template)
    (found,) = prompts.load(write(tmp_path, {"prompt": "Hi"}), folder)
    assert found.text == text


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% if %}", "not a chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "does not take"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "does not take"),
    ],
)
def test_a_template_that_fails_or_escapes_is_bad_input(tmp_path, template, says):
    folder = model(tmp_path, template)
    with pytest.raises(BadInput, match=says) as error:
        prompts.load(write(tmp_path, {"prompt": "Hi"}), folder)
    assert "tokenizer_config.json" in str(error.value)


def test_variants_differ_from_the_first_word_on_and_keep_the_template(tmp_path):
    path = write(tmp_path, {"id": "a", "prompt": "Hi"}, {"id": "b", "prompt": "Ho"})
    found = prompts.enough(prompts.load(path, model(tmp_path)), 5)
    assert [p.id for p in found] == ["a", "b", "a#2", "b#2", "a#3"]
    assert found[2].text == "<|im_start|>user\n(2) Hi<|im_end|>\n<|im_start|>assistant\n"
    assert len({p.text for p in found}) == 5
    assert prompts.enough(found, 2) == found[:2]

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Ends of sentences, in hand-made cases of several languages."""

import pytest

from albert_tf.data_prep.sentence_splitter import SentenceSplitter, sentence_ends_here


@pytest.fixture(scope="module")
def splitter():
    return SentenceSplitter()


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith went to Washington, D.C. in 1990.", "He met Dr. Jones there."],
        ['"Why?" he asked.', '"I don\'t know," she said.', 'They said "No."', "Then silence."],
        ["Pi is 3.14 or so.", "It cost $5.00!", "Really?"],
        ["My soul followeth hard after thee.--Psa. 63:8"],
        ["See Fig. 3 and vol. ii. of the work.", "No. 5 is missing."],
        [
            "I live in the U.S.A. and like it.",
            "The U.S. Senate met.",
            "I left the U.S.",
            "She came.",
        ],
        ["J. R. R. Tolkien wrote it.", "He left at 6 a.m. on Monday."],
        ["He said, “Stop!”", "Then he left… and came back.", "(This is one.)", "It is."],
        ["‘Yes.’", "‘No!’ said he.", "It was a horse, a cow, etc. and so on."],
        ["1. Take salt.", "2. Add water."],
        ["Élan vital.", "Über alles?", "Ça va."],
        ["“Why…” she asked.", "“I don’t know…”", "It is."],
        ["네.", "알겠습니다.", "그는 갔다."],
        ["राम घर गया।", "वह सो गया।"],
        ["هل أنت هنا؟", "نعم.", "ذهب"],
        ["Am 3.", "Oktober war er da.", "Er ging."],  # Wrong, and documented.
        ["ฉันไปตลาด เขาไปโรงเรียน"],  # Thai has no sentence marks.
        ["no end"],
        # Lower-cased text; the second one is tokenized as BookCorpus is.
        ["mr. smith went to washington, d.c. in 1990.", "he met dr. jones.", "see p. 3."],
        ["usually , he would play with toys .", "but just one look !", "`` why ? '' he asked ."],
        ["The U.S. senate met.", "It sat. and so on."],
    ],
)
def test_prose_with_spaces_is_split_where_sentences_end(splitter, sentences):
    assert splitter.split([" ".join(sentences)]) == [sentences]


@pytest.mark.parametrize(
    "sentences",
    [
        ["中文句子。", "第二句！", "第三句"],
        ["真的吗？！", "太好了！！", "好｡"],
        [
            "子曰：「學而時習之，不亦說乎？",
            "有朋自遠方來，不亦樂乎？」",
            "曾子曰：「吾日三省吾身。」",
        ],
        ["“你好！”", "他说。", "“我……我不知道。”", "她走了。"],
        ["『「甲。」』", "乙。", "（注。）", "《書！》", "【終】"],
        ["「甲。」", "「乙！」", "『丙』"],
        ["他走了……後來沒有回來。", "他等著⋯⋯"],
        ["「是的……」", "她低聲說。", "他問：「誰？」……沒有人回答。", "天黑了。"],
        [
            "他說：「走吧！」，就走了。",
            "有人問：「誰？」——沒有人。",
            "甲！、乙！",
            "「好」。",
            "完。",
        ],
        ["他走了——真的走了。", "學而時習之。——《論語》"],
        ["我用Python 3.11写了程序。", "It works！", "很好！", "文件名.txt很长，v2.0更长。"],
        ["你好!", "我很好.", "他来了?", "等等...我来了.", "（对!）", "好"],
        ['他说"走吧。"', "然后走了。", '"好。"', "我说。", '"他是谁?"', "没人知道。"],
        ["「そうだ。」と言った。", "彼は行った。", "「行くぞ！」って。", "はい。"],
        ["テストである．", "また，１．２節を見よ．", "次"],
        ["……！嗯。", "啊"],  # A sentence has a letter.
    ],
)
@pytest.mark.parametrize("space", ["", " "])
def test_chinese_and_japanese_sentences_end_at_their_marks(splitter, sentences, space):
    assert splitter.split([space.join(sentences)]) == [sentences]


def test_an_english_sentence_after_a_chinese_one_keeps_its_own_rules(splitter):
    sentences = ["他读了Fig. 3。", "Mr. Smith wrote it in the U.S. Senate.", "Yes!", "好。"]
    assert splitter.split([" ".join(sentences)]) == [sentences]


def test_words_of_any_length_are_no_abbreviations():
    # In a time that grows with the square of the length, this would take hours.
    assert not sentence_ends_here(f"See {'x' * 1_000_000} and Mr.", "Smith")
    assert sentence_ends_here(f"The hash is {'a' * 1_000_000}.", "Next one")


def test_no_character_is_lost(splitter):
    text = 'One.  Two?" «Three»... x.y. 4.5 — 漢。字 (Six.) [7] &c. &c. The end. " \' ) .'
    text += '。」甲！！ ……乙……」丙"丁。"" ）？ 」'
    [sentences] = splitter.split([text])
    assert "".join("".join(sentences).split()) == "".join(text.split())

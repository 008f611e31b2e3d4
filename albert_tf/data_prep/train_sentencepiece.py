# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a SentencePiece vocabulary with the id layout of the ALBERT releases.

  albert train-sentencepiece --input_file=sentences.txt.gz \\
    --output_prefix=vocabulary/30k

The text is normalised as by the tokenizer. A corpus of any size streams
through a reservoir sampler, so that memory depends on the size of the sample
only.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import os
import random
from collections.abc import Iterable, Iterator

from albert_tf.cli import script
from albert_tf.cli.flags import (
    FLAGS,
    define_overwrite_flag,
    define_path,
    define_settings,
    given_settings,
)
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.locks import lock_folder
from albert_tf.io.log import log
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.io.signals import native_waiting
from albert_tf.io.text_files import read_lines
from albert_tf.settings import Settings, count_setting, setting
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, SPEC_FILE, Tokenizer, TokenizerSpec

#: Ids 0 to 12 of every vocabulary (google-research/albert, README and 30k-clean.vocab).
PADDING, UNKNOWN = "<pad>", "<unk>"
CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
USER_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]
#: Longer sentences are left out, as by SentencePiece's trainer.
MAX_SENTENCE_BYTES = 4192
_SEED = 12345
# The trainer adds up floating-point sums of the threads: another number, another model.
_TRAINER_THREADS = 16
_LARGE_CORPUS_CHARACTERS = 1 << 30
_REPORT_SENTENCES = 10_000


@dataclasses.dataclass(frozen=True)
class VocabularySettings(Settings):
    """The settings that decide the vocabulary, besides the text."""

    vocab_size: int = setting(30000, "Number of pieces, including special ones.", minimum=14)
    lower_case: bool = setting(True, "Lower-case the text.", flag="do_lower_case")
    strip_accents: bool = setting(
        True,
        "Remove accents (é becomes e), as for the English releases. Turn off for languages where "
        "accents distinguish words.",
    )
    character_coverage: float = setting(
        0.99995,
        "Share of the text's characters that get their own piece; the rarest others become <unk>.",
        minimum=0.9,
        maximum=1.0,
    )
    input_sentence_size: int = count_setting(
        10_000_000,
        "Largest number of training sentences, drawn uniformly from all of the text. Memory grows "
        "with it: about 3 kB a sentence, nearly all of it in SentencePiece's trainer.",
    )


def sample_stream(items: Iterable[str], size: int, seed: int) -> list[str]:
    """Returns a uniform sample of at most `size` items of a stream, in stream order.

    Source: Vitter, "Random sampling with a reservoir", algorithm R.
    """
    rng = random.Random(seed)
    sample = []
    for number, item in enumerate(items):
        if number < size:
            sample.append((number, item))
        else:
            place = int(rng.random() * (number + 1))
            if place < size:
                sample[place] = number, item
    return [item for _, item in sorted(sample)]


def _read_sentences(
    input_files: list[str], settings: VocabularySettings, counts: dict
) -> Iterator[str]:
    """Yields the normalised sentences of all files that are not too long, and counts all."""
    counts.update(sentences_read=0, sentences_too_long=0)
    with Progress("reading", total_bytes(input_files)) as progress:
        for path in input_files:
            for line in read_lines(path, on_read=progress.update):
                sentence = normalize(line, settings.lower_case, settings.strip_accents)
                if not sentence:
                    continue
                counts["sentences_read"] += 1
                if len(sentence.encode("utf-8")) > MAX_SENTENCE_BYTES:
                    counts["sentences_too_long"] += 1
                    continue
                yield sentence


def _train(sentences: list[str], settings: VocabularySettings) -> bytes:
    """Returns the serialized model."""
    import sentencepiece as spm

    model = io.BytesIO()
    try:
        with native_waiting():
            spm.SentencePieceTrainer.Train(
                sentence_iterator=iter(sentences),
                model_writer=model,
                model_type="unigram",
                vocab_size=settings.vocab_size,
                character_coverage=settings.character_coverage,
                pad_id=0,
                pad_piece=PADDING,
                unk_id=1,
                unk_piece=UNKNOWN,
                bos_id=-1,
                eos_id=-1,
                # Lists: in a comma-separated string the quotation mark would open a quoted field.
                control_symbols=CONTROL_SYMBOLS,
                user_defined_symbols=USER_SYMBOLS,
                max_sentence_length=MAX_SENTENCE_BYTES,
                num_threads=_TRAINER_THREADS,
                train_extremely_large_corpus=sum(map(len, sentences)) >= _LARGE_CORPUS_CHARACTERS,
                minloglevel=2,
            )
    except RuntimeError as error:
        # After the place in its code, SentencePiece says which sizes are possible.
        reason = str(error).rpartition("] ")[2]
        raise AlbertError(f"SentencePiece could not train: {reason}") from error
    return model.getvalue()


def _report(tokenizer: Tokenizer, sentences: list[str]) -> dict[str, float]:
    """Measures how well the vocabulary fits an evenly spaced part of the sample."""
    selection = sentences[:: -(-len(sentences) // _REPORT_SENTENCES)]
    ids = [i for encoded in tokenizer.encode_batch(selection) for i in encoded]
    spaces = sum(sentence.count(" ") for sentence in selection)
    characters = sum(map(len, selection)) - spaces
    return {
        "pieces_per_word": round(len(ids) / (spaces + len(selection)), 4),
        "characters_per_piece": round(characters / len(ids), 4),
        "unknown_piece_share": round(ids.count(tokenizer.unk_id) / len(ids), 8),
    }


def train_sentencepiece(
    input_files: list[str],
    output_prefix: str,
    settings: VocabularySettings | None = None,
    overwrite: bool = False,
) -> dict[str, object]:
    """Trains a vocabulary; writes PREFIX.model, PREFIX.vocab, PREFIX.training.json, tokenizer.json.

    Equal text, settings and version of the sentencepiece package give equal bytes.

    Args:
      input_files: one sentence per line; blank lines are skipped. UTF-8, plain or compressed.
      output_prefix: path of the results without their suffix; tokenizer.json goes into the same
        folder.
      settings: see VocabularySettings.
      overwrite: replace existing files.

    Returns:
      The content of PREFIX.training.json: settings, version, counts, fit and the model's sha256.

    Raises:
      AlbertError: bad input, text too small for the vocabulary, output files that exist already or
        are input files, or another process that writes to the folder.
    """
    folder = os.path.dirname(output_prefix)
    settings = settings or VocabularySettings()
    outputs = [f"{output_prefix}.{end}" for end in ("model", "vocab", "training.json")]
    with lock_folder(folder):
        for output in [*outputs, os.path.join(folder, SPEC_FILE)]:
            files.check_output(output, input_files, overwrite)
        counts = {}
        sentences = sample_stream(
            _read_sentences(input_files, settings, counts), settings.input_sentence_size, _SEED
        )
        counts["sentences_sampled"] = len(sentences)
        if not sentences:
            raise AlbertError(
                f"No sentence of at most {MAX_SENTENCE_BYTES} bytes in "
                f"{', '.join(input_files[:3])}; {counts['sentences_too_long']} were too long."
            )
        log.info(
            f"Training {settings.vocab_size} pieces on {counts['sentences_sampled']} of "
            f"{counts['sentences_read']} sentences ({counts['sentences_too_long']} too long); this "
            "takes from seconds to hours, without progress output."
        )
        model = _train(sentences, settings)
        name = f"{os.path.basename(output_prefix)}.model"
        spec = TokenizerSpec(
            SENTENCEPIECE, name, settings.lower_case, settings.strip_accents, 0, ""
        )
        tokenizer = Tokenizer(spec, model, f"{output_prefix}.model")
        result = {
            "settings": dataclasses.asdict(settings),
            "sentencepiece": importlib.metadata.version("sentencepiece"),
            **counts,
            **_report(tokenizer, sentences),
            "model_sha256": tokenizer.spec.sha256,
        }
        files.write_json(f"{output_prefix}.training.json", result)
        # As SentencePiece writes it.
        pieces = ModelProto.FromString(model).pieces
        lines = "".join(f"{entry.piece}\t{entry.score:g}\n" for entry in pieces)
        files.write_text(f"{output_prefix}.vocab", lines)
        tokenizer.save(folder or os.curdir)
        return result


def define_flags() -> None:
    """Defines the flags."""
    define_path(
        "input_file",
        None,
        "Text, one sentence per line: a comma list of paths and globs. UTF-8, plain or compressed "
        "(.gz, .bz2, .xz).",
        required=True,
    )
    define_path(
        "output_prefix",
        None,
        "Path of the output files without their suffix: PREFIX.model, PREFIX.vocab and "
        "PREFIX.training.json; tokenizer.json goes into the same folder.",
        required=True,
    )
    define_settings(VocabularySettings)
    define_overwrite_flag()


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    settings = VocabularySettings(**given_settings(VocabularySettings))
    input_files = files.expand_globs(FLAGS.input_file)
    result = train_sentencepiece(input_files, FLAGS.output_prefix, settings, FLAGS.overwrite)
    log.info(
        f"{FLAGS.output_prefix}.model: {settings.vocab_size} pieces, "
        f"{result['pieces_per_word']:.3f} pieces per word, "
        f"{result['characters_per_piece']:.2f} characters per piece, "
        f"{100 * result['unknown_piece_share']:.4f} % unknown pieces."
    )

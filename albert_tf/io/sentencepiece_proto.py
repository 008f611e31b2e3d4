# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The message of a SentencePiece model file, as far as it is read and written here.

The library's own module of messages cannot be imported beside every protobuf: that of sentencepiece
0.2.3 needs a newer one than TensorFlow 2.15 and Apache Beam allow. Numbers and names of fields are
those of its sentencepiece_model.proto; other fields stay in a message, unread.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: Values are numbered from 1; the first is the default.
_ENUMS = {
    "Type": ("NORMAL", "UNKNOWN", "CONTROL", "USER_DEFINED", "UNUSED", "BYTE"),
    "Kind": ("UNIGRAM", "BPE", "WORD", "CHAR"),
}
#: Number and type of each field.
_MESSAGES = {
    "ModelProto": {
        "pieces": (1, "Piece"),
        "trainer_spec": (2, "Trainer"),
        "normalizer_spec": (3, "Rules"),
        "denormalizer_spec": (5, "Rules"),
    },
    "Piece": {"piece": (1, "string"), "score": (2, "float"), "type": (3, "Type")},
    "Trainer": {
        "model_type": (3, "Kind"),
        "vocab_size": (4, "int32"),
        "byte_fallback": (35, "bool"),
        "unk_id": (40, "int32"),
        "bos_id": (41, "int32"),
        "eos_id": (42, "int32"),
        "pad_id": (43, "int32"),
        "unk_piece": (45, "string"),
    },
    "Rules": {"precompiled_charsmap": (2, "bytes")},
}


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="albert_tf/model.proto", package="albert_tf")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, (number, kind) in fields.items():
            field = message.field.add(name=name, number=number)
            field.label = field.LABEL_REPEATED if name == "pieces" else field.LABEL_OPTIONAL
            if kind in _MESSAGES:
                field.type, field.type_name = field.TYPE_MESSAGE, kind
            elif kind in _ENUMS:
                field.type, field.type_name = field.TYPE_ENUM, kind
                field.default_value = _ENUMS[kind][0]
                enum = message.enum_type.add(name=kind)
                for value, value_name in enumerate(_ENUMS[kind], start=1):
                    enum.value.add(name=value_name, number=value)
            else:
                field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_describe())
ModelProto = message_factory.GetMessageClass(_pool.FindMessageTypeByName("albert_tf.ModelProto"))

# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SavedModels for TF-Hub and for serving: encoders, preprocessors and fine-tuned models."""

// Options that name the model and the data of a training run.
#pragma once

#include <optional>
#include <string>

#include "core/options.h"
#include "train/option_values.h"

namespace hone {

struct ModelOptions {
  std::string model_name_or_path;
  std::string model_revision = "main";
  std::string tokenizer_name_or_path;
  TorchDtype torch_dtype = TorchDtype::kAutomatic;
  std::optional<bool> bf16;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path,
      "Folder of the model to start from, or its name on the Hugging Face hub");
    v("model_revision", model_revision, "Branch, tag or commit of a model from the hub");
    v("tokenizer_name_or_path", tokenizer_name_or_path, "Folder of the tokenizer; unset: the model's");
    v.alias("tokenizer_name", "tokenizer_name_or_path");
    v("torch_dtype", torch_dtype, "Dtype of the weights; auto is that of the checkpoint");
    v("bf16", bf16, "Compute in bfloat16");
    v.alias("dtype", "torch_dtype");
  }
};

struct DatasetOptions {
  std::string dataset_name;
  std::string dataset_config;
  YamlValue dataset_mixture;
  std::string dataset_train_split = "train";
  std::string dataset_test_split = "test";
  std::string eval_dataset_name;
  bool token_cache = true;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Data");
    v("dataset_name", dataset_name, "File, folder or pattern of the data, or the name of a dataset on the hub");
    v("dataset_config", dataset_config, "Configuration of the dataset, as its README.md says, or a folder inside it");
    v("dataset_mixture", dataset_mixture,
      "Instead of dataset_name: {datasets: [{id, config, split, columns, weight}], seed, test_split_size}");
    v("dataset_train_split", dataset_train_split, "Split to train on");
    v("dataset_test_split", dataset_test_split,
      "Split to evaluate on, of eval_dataset_name, otherwise of dataset_name");
    v("eval_dataset_name", eval_dataset_name, "File or folder to evaluate on; a file is taken whole");
    v.run_only([&] {
      v("token_cache", token_cache, "Keep encoded data in $HONE_CACHE, or in ~/.cache/hone, for the next start");
    });
  }
};

}  // namespace hone

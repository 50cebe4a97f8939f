// Tests that errors in a user's input end with exit code 1 and one line. The lines are frozen in fixtures, so that a
// reviewer reads them as a user would: they say what, where, the value seen and how to fix it.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "cli/command_line.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/full_disk.h"
#include "support/golden.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// Returns the lines that are errors or report a defect.
Words errors_in(const std::string& said) {
  Words errors;
  for (const std::string& line : split(said, '\n')) {
    if (line.starts_with("hone: error: ") || line.find("defect") != std::string::npos) errors.push_back(line);
  }
  return errors;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// A miniature with a model that was trained for two steps, broken copies of it, and a table of the error lines.
class BadInput : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(root());
    ::setenv("HF_HOME", at("hf").c_str(), 1);
    ::setenv("HF_HUB_OFFLINE", "1", 1);
    const CommandResult ended =
        run_commands({"pretrain", "--model_config_path", at("model.json"), "--tokenizer_name_or_path", at("tokenizer"),
                      "--dataset_name", at("data/corpus.jsonl"), "--block_size", "64", "--max_steps", "2",
                      "--save_steps", "1", "--output_dir", at("run")});
    ASSERT_EQ(ended.code, 0) << ended.said;
    fs::create_directories(root() / "model");
    fs::create_directories(root() / "broken");
    for (const std::string& name : list_folder(root() / "run")) {
      if (is_file(root() / "run" / name)) fs::copy_file(root() / "run" / name, root() / "model" / name);
    }
    const Json index = read_json(root() / "model/config.json");
    ASSERT_TRUE(index.contains("hidden_size"));
  }
  static void TearDownTestSuite() {
    ::unsetenv("HF_HOME");
    ::unsetenv("HF_HUB_OFFLINE");
    folder_.reset();
  }

  [[nodiscard]] static fs::path root() { return folder_->path(); }
  [[nodiscard]] static std::string at(const std::string& relative) { return (root() / relative).string(); }

  // Returns an output folder that no earlier case has used.
  [[nodiscard]] static std::string fresh() { return at("out-" + std::to_string(++folders_)); }

  // Runs one case: a command line that must end with exactly one error line, which is added to the table.
  void expect_error(const std::string& what, const Words& arguments) {
    const CommandResult ended = run_commands(arguments);
    const Words errors = errors_in(ended.said);
    EXPECT_EQ(ended.code, 1) << what << "\n" << ended.said;
    EXPECT_EQ(errors.size(), 1u) << what << "\n" << ended.said;
    EXPECT_TRUE(ended.said.ends_with("\n")) << what;
    const std::string last = errors.empty() ? "nothing" : errors.back();
    EXPECT_TRUE(ended.said.ends_with(last + "\n")) << what << ": something follows the error\n" << ended.said;
    EXPECT_LT(last.size(), 600u) << what;
    const std::string here = replaced(replaced(last, root().string(), "DIR"), fs::current_path().string(), "HERE");
    table_ += what + "\n  " + replaced(here, "DIR/out-" + std::to_string(folders_), "DIR/out") + "\n";
    ++cases_;
  }

  // Command lines with the keys that they need, followed by `more`.
  [[nodiscard]] static Words with(Words base, const Words& more) {
    base.insert(base.end(), more.begin(), more.end());
    return base;
  }
  [[nodiscard]] static Words sft(const Words& more) {
    return with({"sft", "--model_name_or_path", at("model"), "--dataset_name", at("data/sft.jsonl"), "--max_steps", "1",
                 "--max_length", "128", "--output_dir", fresh()},
                more);
  }
  [[nodiscard]] static Words grpo(const Words& more) {
    return with({"grpo", "--model_name_or_path", at("model"), "--dataset_name", at("data/prompts.jsonl"), "--max_steps",
                 "1", "--max_completion_length", "8", "--output_dir", fresh()},
                more);
  }
  [[nodiscard]] static Words pretrain(const Words& more) {
    return with({"pretrain", "--model_config_path", at("model.json"), "--tokenizer_name_or_path", at("tokenizer"),
                 "--dataset_name", at("data/corpus.jsonl"), "--block_size", "64", "--max_steps", "1", "--output_dir",
                 at("out")},
                more);
  }
  [[nodiscard]] static Words eval(const Words& more) {
    return with({"eval", at("model"), "--dataset_name", at("data/held_out.jsonl"), "--limit", "1"}, more);
  }
  // Command line of sft with a recipe file of this text.
  [[nodiscard]] static Words recipe(const std::string& text) {
    write_file(root() / "recipe.yaml", text);
    return {"sft", "--config", at("recipe.yaml")};
  }
  [[nodiscard]] static Words data(const std::string& name, const std::string& text, const Words& more = {}) {
    write_file(root() / "broken" / name, text);
    return sft(with({"--dataset_name", at("broken/" + name)}, more));
  }

  // Command line of sft on a copy of the model that `change` has broken.
  [[nodiscard]] static Words broken(const std::string& name, const std::function<void(const fs::path&)>& change) {
    const fs::path folder = root() / "broken" / name;
    fs::create_directories(folder.parent_path());
    fs::copy(root() / "model", folder);
    change(folder);
    return sft({"--model_name_or_path", folder.string()});
  }
  [[nodiscard]] static Words broken_config(const std::string& name, const std::string& key, const Json& value) {
    return broken(name, [&](const fs::path& folder) {
      Json config = read_json(folder / "config.json");
      if (value.is_null()) {
        config.erase(key);
      } else {
        config[key] = value;
      }
      write_json(folder / "config.json", config);
    });
  }
  // Command line of sft on a copy of the model with a changed header of model.safetensors, but the same data.
  [[nodiscard]] static Words broken_header(const std::string& name, const std::function<void(Json&)>& change) {
    return broken(name, [&](const fs::path& folder) {
      const std::string bytes = read_file(folder / "model.safetensors");
      std::uint64_t length = 0;
      std::memcpy(&length, bytes.data(), 8);
      Json header = parse_json(bytes.substr(8, length), "header");
      change(header);
      std::string text = header.dump();
      text.resize((text.size() + 7) / 8 * 8, ' ');
      const std::uint64_t size = text.size();
      std::string changed(8, '\0');
      std::memcpy(changed.data(), &size, 8);
      write_file(folder / "model.safetensors", changed + text + bytes.substr(8 + length));
    });
  }

  void expect_frozen(const std::string& name) const { expect_golden("cli/bad_input_" + name + ".txt", table_); }

  inline static std::unique_ptr<TemporaryDirectory> folder_;
  inline static int folders_ = 0;
  std::string table_;
  int cases_ = 0;
};

TEST_F(BadInput, Keys) {
  expect_error("a misspelt flag", sft({"--learning_rat", "1e-5"}));
  expect_error("a flag that nothing resembles", sft({"--zebra", "1"}));
  expect_error("text for a number", sft({"--learning_rate", "fast"}));
  expect_error("a number below its range", sft({"--learning_rate", "-1"}));
  expect_error("a fraction for a count", sft({"--max_steps", "1.5"}));
  expect_error("a number too large for 64 bits", sft({"--seed", "99999999999999999999"}));
  expect_error("not a number", sft({"--weight_decay", "nan"}));
  expect_error("no steps", sft({"--max_steps", "0"}));
  expect_error("no epochs", sft({"--num_train_epochs", "0"}));
  expect_error("an empty batch", sft({"--per_device_train_batch_size", "0"}));
  expect_error("a word after a switch", sft({"--packing", "maybe"}));
  expect_error("an unknown name", sft({"--lr_scheduler_type", "cosin"}));
  expect_error("an unknown optimizer", sft({"--optim", "lion"}));
  expect_error("a missing value", sft({"--learning_rate"}));
  expect_error("an empty value", sft({"--learning_rate="}));
  expect_error("a share above 1", sft({"--warmup_ratio", "2"}));
  expect_error("a beta of 1", sft({"--adam_beta1", "1"}));
  expect_error("steps that are no whole number", sft({"--save_steps", "2.5"}));
  expect_error("a key inside a map, misspelt", sft({"--lr_scheduler_kwargs.min_lr_rat", "0.1"}));
  expect_error("a map that is none", sft({"--lr_scheduler_kwargs", "0.1"}));
  expect_error("YAML that does not close", sft({"--lr_scheduler_kwargs", "{min_lr_rate: 0.1"}));
  expect_error("kwargs of another schedule", sft({"--lr_scheduler_kwargs", "{min_lr_rate: 0.1}"}));
  expect_error("both of two kwargs", sft({"--lr_scheduler_type", "cosine_with_min_lr", "--lr_scheduler_kwargs",
                                          "{min_lr: 0, min_lr_rate: 0}"}));
  expect_error("neither of two kwargs", sft({"--lr_scheduler_type", "cosine_with_min_lr"}));
  expect_error("a feature that is not there", sft({"--neftune_noise_alpha", "5"}));
  expect_error("a feature that never will be", sft({"--load_in_4bit"}));
  expect_error("float16", sft({"--fp16"}));
  expect_error("a tracker that does not exist", sft({"--report_to", "tensorbord"}));
  expect_error("the best model without evaluations", sft({"--load_best_model_at_end"}));
  expect_error("the best checkpoint without evaluations", sft({"--save_strategy", "best"}));
  expect_error("evaluation without data", sft({"--eval_strategy", "steps"}));
  expect_error("bf16 beside float32", sft({"--bf16", "--torch_dtype", "float32"}));
  expect_error("packing without a length", sft({"--packing", "--max_length", "null"}));
  expect_error("a device that is not there", sft({"--device", "tpu"}));
  expect_error("no model", {"sft", "--dataset_name", at("data/sft.jsonl"), "--output_dir", fresh()});
  expect_error("no data", {"sft", "--model_name_or_path", at("model"), "--output_dir", fresh()});
  expect_error("no output", {"sft", "--model_name_or_path", at("model"), "--dataset_name", at("data/sft.jsonl")});
  expect_error("a word too many", sft({"--seed", "1", "extra"}));
  expect_frozen("keys");
  EXPECT_GE(cases_, 35);
}

TEST_F(BadInput, Recipes) {
  expect_error("a missing file", {"sft", "--config", at("none.yaml")});
  expect_error("a folder", {"sft", "--config", at("data")});
  expect_error("no path", {"sft", "--config"});
  expect_error("two files", {"sft", "--config", at("a.yaml"), "--config", at("b.yaml")});
  expect_error("not YAML", recipe("learning_rate: [1\n"));
  expect_error("a tab", recipe("a:\n\tb: 1\n"));
  expect_error("a list", recipe("- learning_rate\n"));
  expect_error("a key twice", recipe("seed: 1\nseed: 2\n"));
  expect_error("a key and its alias", recipe("max_length: 10\nmax_seq_length: 20\n"));
  expect_error("a misspelt key", recipe("seed: 1\n\nlearning-rat: 1e-5\n"));
  expect_error("a list for a number", recipe("learning_rate: [1, 2]\n"));
  expect_error("a map for text", recipe("output_dir: {a: 1}\n"));
  expect_error("a quoted word for a number", recipe("max_steps: 'ten'\n"));
  expect_error("env that is no map", recipe("env: [A]\n"));
  expect_error("two documents", recipe("seed: 1\n---\nseed: 2\n"));
  expect_error("a value that holds itself", recipe("a: &x [*x]\n"));
  write_file(root() / "accelerate.yaml", "num_processes: 8\nmixed_precision: fp16\n");
  expect_error("accelerate's fp16", sft({"--config_file", at("accelerate.yaml")}));
  write_file(root() / "accelerate.yaml", "deepspeed_config: {zero_stag: 2}\n");
  expect_error("a misspelt key of accelerate", sft({"--config_file", at("accelerate.yaml")}));
  expect_error("a missing file of accelerate", sft({"--config_file", at("none.yaml")}));
  expect_frozen("recipes");
  EXPECT_GE(cases_, 19);
}

TEST_F(BadInput, Models) {
  const auto rewrite = [](const char* file, const std::string& text) {
    return [=](const fs::path& folder) { write_file(folder / file, text); };
  };
  const auto remove = [](const char* file) { return [=](const fs::path& folder) { fs::remove(folder / file); }; };
  expect_error("no such folder", sft({"--model_name_or_path", at("none")}));
  expect_error("a name that is not in the cache", sft({"--model_name_or_path", "nobody/none"}));
  expect_error("a file", sft({"--model_name_or_path", at("model.json")}));
  expect_error("no config.json", broken("no_config", remove("config.json")));
  expect_error("config.json is no JSON", broken("bad_config", rewrite("config.json", "{\"model_type\": ")));
  expect_error("config.json is not UTF-8",
               broken("latin_config", rewrite("config.json", "{\"model_type\": \"\xE9\"}")));
  expect_error("config.json is a list", broken("list_config", rewrite("config.json", "[1]")));
  expect_error("an unknown family", broken_config("family", "model_type", "mamba"));
  expect_error("a family that is near", broken_config("near", "model_type", "qwen"));
  expect_error("no family", broken_config("no_family", "model_type", nullptr));
  expect_error("a size that is text", broken_config("text_size", "hidden_size", "32"));
  expect_error("a size of 0", broken_config("zero_size", "hidden_size", 0));
  expect_error("a size that is too large", broken_config("huge_size", "hidden_size", 1e15));
  expect_error("a size that is missing", broken_config("no_size", "hidden_size", nullptr));
  expect_error("heads that do not divide", broken_config("heads", "num_key_value_heads", 3));
  expect_error("config.json against the weights", broken_config("other_size", "intermediate_size", 64));
  expect_error("fewer layers than the weights have", broken_config("layers", "num_hidden_layers", 1));
  expect_error("more layers than the weights have", broken_config("more_layers", "num_hidden_layers", 3));
  expect_error("the vocabulary against the tokenizer", broken_config("vocabulary", "vocab_size", 100));
  expect_error("no weights", broken("no_weights", remove("model.safetensors")));
  expect_error("empty weights", broken("empty_weights", rewrite("model.safetensors", "")));
  expect_error("weights cut short", broken("cut", [](const fs::path& folder) {
                 fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") - 100);
               }));
  expect_error("a header cut short", broken("cut_header", [](const fs::path& folder) {
                 fs::resize_file(folder / "model.safetensors", 100);
               }));
  expect_error("a header of absurd length",
               broken("long_header", rewrite("model.safetensors", std::string(8, '\x7F') + "{}")));
  expect_error("a header that is no JSON",
               broken("header_text", rewrite("model.safetensors", std::string("\x08\0\0\0\0\0\0\0", 8) + "no JSON ")));
  expect_error("not safetensors at all",
               broken("pickle", rewrite("model.safetensors", "PK\x03\x04 a zip file of torch")));
  expect_error("a tensor of another shape", broken_header("shape", [](Json& header) {
                 Json& tensor = header["model.norm.weight"];
                 tensor["shape"] = {4, 8};
               }));
  expect_error("a shape that does not fit its bytes",
               broken_header("bytes", [](Json& header) { header["model.norm.weight"]["shape"] = {33}; }));
  expect_error("bytes past the end", broken_header("past", [](Json& header) {
                 auto& offsets = header["model.norm.weight"]["data_offsets"];
                 offsets[0] = offsets[0].get<std::int64_t>() + (1 << 30);
                 offsets[1] = offsets[1].get<std::int64_t>() + (1 << 30);
               }));
  expect_error("an unknown type",
               broken_header("type", [](Json& header) { header["model.norm.weight"]["dtype"] = "F3"; }));
  expect_error("a missing tensor", broken_header("missing", [](Json& header) {
                 header["model.norm.bias"] = header["model.norm.weight"];
                 header.erase("model.norm.weight");
               }));
  expect_error("an index that names no file", broken("index", [](const fs::path& folder) {
                 fs::remove(folder / "model.safetensors");
                 write_file(folder / "model.safetensors.index.json",
                            R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
               }));
  expect_error("no tokenizer", broken("no_tokenizer", remove("tokenizer.json")));
  expect_error("tokenizer.json is no JSON", broken("bad_tokenizer", rewrite("tokenizer.json", "{")));
  expect_error("a tokenizer of another kind",
               broken("wordpiece", rewrite("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {}}})")));
  expect_error("a template that does not parse", sft({"--chat_template", "{% for m in messages %}{{ m.content }}"}));
  expect_error("a template that fails", sft({"--chat_template", "{{ nothing.at_all }}"}));
  expect_error("a template that is not there", sft({"--chat_template", at("none.jinja")}));
  expect_error("an end token that is not there", sft({"--eos_token", "<|nothing|>"}));
  expect_frozen("models");
  EXPECT_GE(cases_, 38);
}

TEST_F(BadInput, Data) {
  expect_error("a missing file", sft({"--dataset_name", at("none.jsonl")}));
  expect_error("an empty file", data("empty.jsonl", ""));
  expect_error("blank lines only", data("blank.jsonl", "\n\n"));
  expect_error("an unknown kind of file", data("rows.xyz", "1"));
  fs::create_directories(root() / "nothing");
  expect_error("an empty folder", sft({"--dataset_name", at("nothing")}));
  expect_error("a line that is no JSON", data("line.jsonl", "{\"text\": \n{\"text\"\n"));
  expect_error("a row that is no object", data("number.jsonl", "3\n[]\n"));
  expect_error("rows without the column", data("columns.jsonl", "{\"foo\": 1}\n{\"foo\": 2}\n"));
  expect_error("a column of another type", data("messages.jsonl", "{\"messages\": \"hello\"}\n"));
  expect_error("a message without a role", data("role.jsonl", "{\"messages\": [{\"content\": \"x\"}]}\n"));
  expect_error("a message without content", data("content.jsonl", "{\"messages\": [{\"role\": \"user\"}]}\n"));
  expect_error("empty texts", data("nothing.jsonl", "{\"prompt\": \"\", \"completion\": \"\"}\n"));
  expect_error("invalid UTF-8 in JSON", data("utf8.jsonl", "{\"text\": \"\xFF\xFE\"}\n"));
  expect_error("JSON nested too deeply", data("deep.jsonl", std::string(100'000, '[') + "\n"));
  expect_error("JSON that is no list of rows", data("rows.json", "{\"a\": 1}"));
  expect_error("a text field that is not there",
               data("field.jsonl", "{\"body\": \"a\"}\n", {"--dataset_text_field", "txt"}));
  expect_error("a prompt column that is not there", data("prompt.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n",
                                                         {"--dataset_prompt_column", "promt"}));
  expect_error("a split that is not there", sft({"--dataset_train_split", "trian"}));
  expect_error("evaluation data that is not there",
               sft({"--eval_strategy", "steps", "--eval_dataset_name", at("none.jsonl")}));
  expect_error("nothing compressed", data("rows.jsonl.gz", "this is not gzip"));
  expect_error("nothing of Parquet", data("rows.parquet", "PAR1 and then nothing"));
  expect_error("loss on turns that the template does not mark",
               sft({"--assistant_only_loss", "--chat_template", "{{ messages }}"}));
  expect_error("no start", {"pretrain", "--dataset_name", at("data/corpus.jsonl"), "--output_dir", fresh()});
  expect_error("two starts", pretrain({"--model_name_or_path", at("model")}));
  expect_error("a config that is not there", pretrain({"--model_config_path", at("none.json")}));
  expect_error("a tokenizer that is not there", pretrain({"--tokenizer_name_or_path", at("nothing")}));
  expect_error("all of it held out", pretrain({"--test_split_size", "1"}));
  expect_error("an empty corpus", pretrain({"--dataset_name", at("broken/empty.jsonl")}));
  expect_frozen("data");
  EXPECT_GE(cases_, 28);
}

TEST_F(BadInput, Grpo) {
  expect_error("an unknown reward", grpo({"--reward_funcs", "acuracy"}));
  expect_error("no reward", grpo({"--reward_funcs", "[]"}));
  expect_error("weights for other rewards", grpo({"--reward_weights", "1,2"}));
  expect_error("generations that do not divide", grpo({"--num_generations", "3"}));
  expect_error("one generation", grpo({"--num_generations", "1"}));
  expect_error("a batch that does not divide", grpo({"--generation_batch_size", "12"}));
  expect_error("fewer prompts than a generation takes",
               grpo({"--gradient_accumulation_steps", "1000", "--num_generations", "2"}));
  expect_error("cispo without its cap", grpo({"--loss_type", "cispo"}));
  expect_error("a temperature of 0", grpo({"--temperature", "0"}));
  expect_error("a prompt length of 0", grpo({"--max_prompt_length", "0"}));
  write_file(root() / "broken/gold.jsonl", "{\"problem\": \"What is 1 + 1?\"}\n{\"problem\": \"2?\"}\n");
  expect_error("no answer to judge by", grpo({"--dataset_name", at("broken/gold.jsonl"), "--reward_funcs", "accuracy",
                                              "--num_generations", "8"}));
  expect_error("prompts of another name", grpo({"--dataset_prompt_column", "promt"}));
  expect_error("evaluation without data", grpo({"--eval_strategy", "steps"}));
  expect_error("a server for rollouts", grpo({"--rollout", "server"}));
  expect_error("no run to show", {"grpo", "--show", at("nothing")});
  expect_error("three words to show", {"grpo", "--show", "a", "b", "c"});
  expect_frozen("grpo");
  EXPECT_GE(cases_, 16);
}

TEST_F(BadInput, OtherCommands) {
  expect_error("a misspelt command", {"pretrian"});
  expect_error("a command that nothing resembles", {"zebra"});
  expect_error("eval without a model", {"eval", "--dataset_name", at("data/held_out.jsonl")});
  expect_error("eval of two models", {"eval", "a", "b"});
  expect_error("eval without weights", {"eval", at("tokenizer"), "--dataset_name", at("data/held_out.jsonl")});
  expect_error("an unknown task", eval({"--task", "gsm9k"}));
  expect_error("a problem column that is not there", eval({"--problem_column", "qestion"}));
  expect_error("an answer column that is not there", eval({"--answer_column", "anser"}));
  expect_error("a prompt longer than the limit", eval({"--max_model_len", "2"}));
  expect_error("eval on nothing", eval({"--dataset_name", at("none.jsonl")}));
  expect_error("chat with nobody", {"chat"});
  expect_error("chat with a file", {"chat", at("model.json")});
  expect_error("plan of nothing", {"plan"});
  expect_error("plan of something else", {"plan", "sfd"});
  expect_error("plan with a misspelt key", {"plan", "sft", "--sed", "1"});
  expect_error("tokenizer without a verb", {"tokenizer"});
  expect_error("tokenizer with another verb", {"tokenizer", "trian"});
  expect_error("tokenizer without text", {"tokenizer", "train", "--output", at("out-tokenizer")});
  expect_error("tokenizer on a missing file",
               {"tokenizer", "train", "--input", at("none.jsonl"), "--output", at("out-tokenizer")});
  expect_error("a vocabulary that is too small", {"tokenizer", "train", "--input", at("data/corpus.jsonl"),
                                                  "--vocab_size", "10", "--output", at("out-tokenizer")});
  expect_error("encode without a tokenizer", {"tokenizer", "encode", "hello"});
  expect_error("decode of a word", {"tokenizer", "decode", "--tokenizer", at("tokenizer"), "hello"});
  expect_error("decode of an id that is not there", {"tokenizer", "decode", "--tokenizer", at("tokenizer"), "999999"});
  expect_error("bench of nothing", {"bench"});
  expect_error("bench of an unknown model", {"bench", "train", "--model", "enormous"});
  expect_error("quickstart without recipes", {"quickstart", "--recipes", at("nothing")});
  expect_frozen("commands");
  EXPECT_GE(cases_, 26);
}

TEST_F(BadInput, Outputs) {
  expect_error("a file where the folder should be", sft({"--output_dir", at("model.json")}));
  expect_error("a file above the folder", sft({"--output_dir", at("model.json/out")}));
  expect_error("a folder that cannot be", sft({"--output_dir", "/proc/none/out"}));
  expect_error("eval into a file", eval({"--output_dir", at("model.json")}));
  expect_error("a tokenizer into a file",
               {"tokenizer", "train", "--input", at("data/corpus.jsonl"), "--output", at("model.json")});
  expect_error("TensorBoard's folder is a file",
               sft({"--report_to", "tensorboard", "--logging_dir", at("model.json")}));
  {
    const FullDisk disk(20'000);
    expect_error("a full disk", pretrain({"--output_dir", at("full")}));
  }
  expect_error("no checkpoint to resume", sft({"--output_dir", at("fresh"), "--resume_from_checkpoint", "true"}));
  expect_error("a checkpoint that is not there", sft({"--resume_from_checkpoint", at("checkpoint-7")}));
  expect_error("a model for a checkpoint", sft({"--resume_from_checkpoint", at("model")}));
  const fs::path cut = root() / "cut/checkpoint-1";
  fs::create_directories(cut.parent_path());
  fs::copy(root() / "run/checkpoint-1", cut, fs::copy_options::recursive);
  fs::resize_file(cut / "optimizer.safetensors", 50);
  expect_error("a checkpoint cut short", pretrain({"--resume_from_checkpoint", cut.string()}));
  write_file(cut / "training_state.json", "{");
  expect_error("a checkpoint's state that is no JSON", pretrain({"--resume_from_checkpoint", cut.string()}));
  const fs::path bare = root() / "bare";
  ASSERT_EQ(run_commands(pretrain({"--save_only_model", "--save_steps", "1", "--output_dir", bare.string()})).code, 0);
  expect_error("a checkpoint of the model alone",
               pretrain({"--max_steps", "2", "--resume_from_checkpoint", (bare / "checkpoint-1").string()}));
  const std::string sft_run = at("sft-run");
  ASSERT_EQ(run_commands(sft({"--save_steps", "1", "--output_dir", sft_run})).code, 0);
  expect_error("a checkpoint of another command", grpo({"--resume_from_checkpoint", sft_run + "/checkpoint-1"}));
  expect_error(
      "metrics that evaluations do not have",
      pretrain({"--output_dir", at("metrics"), "--test_split_size", "0.2", "--eval_strategy", "steps", "--eval_steps",
                "1", "--save_steps", "1", "--load_best_model_at_end", "--metric_for_best_model", "bleu"}));
  expect_frozen("outputs");
  EXPECT_GE(cases_, 15);
}

}  // namespace
}  // namespace hone::test

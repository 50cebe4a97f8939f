// Tests of an engine over a tensor group: whatever requests come and go, its results are those of one process.
#include "engine/engine_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <new>
#include <thread>

#include "checkpoint/safetensors.h"
#include "core/random.h"
#include "engine/follower.h"
#include "engine/resident_model.h"
#include "job/mixtures.h"
#include "job/rank_losses.h"
#include "model/fp8_model.h"
#include "model/received_tensors.h"
#include "model/tensor_parallel_model.h"
#include "model/weights.h"
#include "ops/registry.h"
#include "support/error_text.h"
#include "support/free_port.h"
#include "support/metered_device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVocabulary = 308;

// Numbers of a random sequence of actions, the same in each call with a seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed, "actions") {}
  [[nodiscard]] std::int64_t below(std::int64_t most) {
    return static_cast<std::int64_t>(random_.below(at_++, static_cast<std::uint64_t>(most)));
  }
  [[nodiscard]] bool one_in(std::int64_t count) { return below(count) == 0; }

 private:
  RandomStream random_;
  std::uint64_t at_ = 0;
};

// A request of each kind that a server takes: penalties, bans (masks), lists of tokens, scored prompts.
Request random_request(Dice& dice, std::uint64_t seed) {
  Request request;
  const std::int64_t shared = dice.one_in(2) ? 40 : 0;  // a beginning that many requests have
  for (std::int64_t t = 0; t < shared; ++t) request.prompt.push_back(static_cast<TokenId>(t));
  for (std::int64_t t = 1 + dice.below(30); t > 0; --t)
    request.prompt.push_back(static_cast<TokenId>(dice.below(kVocabulary)));
  SamplingParams& sampling = request.sampling;
  sampling.seed = seed;
  sampling.detokenize = false;
  sampling.temperature = dice.one_in(2) ? 0.0 : 0.9;
  sampling.max_tokens = 1 + dice.below(40);
  if (dice.one_in(4)) sampling.top_k = 1 + dice.below(20);
  if (dice.one_in(4)) sampling.frequency_penalty = 0.5;
  if (dice.one_in(4)) sampling.logit_bias[static_cast<TokenId>(dice.below(kVocabulary))] = 3.0;
  if (dice.one_in(4)) sampling.bad_words = {{static_cast<TokenId>(dice.below(kVocabulary))}, {5, 6}};
  if (dice.one_in(4)) {
    sampling.stop_token_ids = {7, 11, static_cast<TokenId>(dice.below(kVocabulary))};
    sampling.min_tokens = std::min(dice.below(5), sampling.max_tokens);
  }
  if (dice.one_in(4)) sampling.logprobs = 1 + dice.below(3);
  if (dice.one_in(6)) sampling.prompt_logprobs = dice.below(3);
  return request;
}

// A random sequence of requests, cancels, steps and pauses, and what all requests have at its end.
std::vector<Completion> act(Engine& engine, std::uint64_t seed) {
  Dice dice(seed);
  std::vector<RequestId> ids;
  for (int i = 0; i < 150; ++i) {
    const std::int64_t action = dice.below(10);
    if (action < 3) {
      ids.push_back(engine.add(random_request(dice, seed * 1000 + ids.size())));
    } else if (action == 3 && !ids.empty()) {
      engine.cancel(ids[static_cast<std::size_t>(dice.below(std::ssize(ids)))]);
    } else if (action == 4 && dice.one_in(3)) {
      engine.settle([](const Engine::Update&) {});
      if (dice.one_in(2)) engine.weights_changed();
    } else if (action == 5 && dice.one_in(3)) {
      engine.forget_prefixes();
    } else {
      (void)engine.step();
    }
  }
  engine.run([](const Engine::Update&) {});
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(engine.take(id));
  return completions;
}

EngineOptions small_options(bool ahead, std::int64_t speculative) {
  return resolved({.max_model_len = 128,
                   .max_num_seqs = 6,
                   .max_batch_tokens = 48,
                   .block_size = 8,
                   .num_blocks = 32,
                   .adjust_logits = true,
                   .max_logprobs = 3,
                   .max_prompt_samples = 8,
                   .num_speculative_tokens = speculative,
                   .launch_ahead = ahead});
}

using Load = std::function<TensorStore(const Model& part, int rank)>;

TensorStore load_random(const Model& part, int) { return random_parts(part); }

using Make = std::function<std::unique_ptr<Model>()>;

// Calls lead(group) on the first of `size` ranks, while the others follow. make: makes the whole model; fp8: parts are
// Fp8Models
void run_engine_group(const Make& make, int size,
                      const std::function<void(EngineGroup&, const Model&, TensorStore)>& lead,
                      const Load& load = load_random, bool fp8 = false) {
  register_operations();
  const std::uint16_t port = free_port();
  const Tokenizer tokenizer = letter_tokenizer(kVocabulary);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Peers peers({.rank = rank, .size = size, .local_rank = rank, .local_size = size, .port = port});
      EngineGroup group(cpu_device(), peers);
      std::unique_ptr<Model> part = group.part_of(make());
      if (fp8) part = std::make_unique<Fp8Model>(std::move(part));
      if (rank > 0) return follow_engine(group, *part, tokenizer, load(*part, rank));
      lead(group, *part, load(*part, rank));
      group.end();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void expect_same(const std::vector<Completion>& group, const std::vector<Completion>& one, const std::string& what) {
  ASSERT_EQ(group.size(), one.size());
  const auto expect_near = [&](const std::vector<float>& a, const std::vector<float>& b, std::size_t i) {
    ASSERT_EQ(a.size(), b.size()) << what << ", request " << i;
    for (std::size_t t = 0; t < a.size(); ++t) EXPECT_NEAR(a[t], b[t], 1e-4) << what << ", request " << i;
  };
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(group[i].tokens, one[i].tokens) << what << ", request " << i;
    EXPECT_EQ(group[i].finish_reason, one[i].finish_reason) << what << ", request " << i;
    EXPECT_EQ(group[i].top_logprobs.size(), one[i].top_logprobs.size()) << what << ", request " << i;
    expect_near(group[i].logps, one[i].logps, i);
    expect_near(group[i].prompt_logps, one[i].prompt_logps, i);
  }
}

// Compares a group with one process. Returns the number of generated tokens.
std::int64_t expect_same_group(const Make& make, int size, const EngineOptions& options, std::uint64_t seed,
                               const std::string& what) {
  register_operations();
  const Tokenizer tokenizer = letter_tokenizer(kVocabulary);
  const std::unique_ptr<Model> whole = make();
  const TensorStore weights = random_parts(*whole);
  Engine alone(*whole, tokenizer, weights, std::make_shared<Arena>(cpu_device()), options);
  const std::vector<Completion> one = act(alone, seed);
  std::vector<Completion> group_has;
  run_engine_group(make, size, [&](EngineGroup& group, const Model& part, TensorStore parts) {
    Engine engine(part, tokenizer, parts, std::make_shared<Arena>(cpu_device()), options, &group);
    engine.prepare();
    group_has = act(engine, seed);
    EXPECT_EQ(engine.statistics().steps, alone.statistics().steps) << what;
    EXPECT_EQ(engine.statistics().preemptions, alone.statistics().preemptions) << what;
  });
  expect_same(group_has, one, what);
  std::int64_t generated = 0;
  for (const Completion& completion : one) generated += std::ssize(completion.tokens);
  return generated;
}

TEST(EngineGroup, StaysInStepWhateverRequestsComeAndGo) {
  std::int64_t generated = 0;
  for (const char* type : {"llama", "qwen3", "gpt2"}) {
    const auto make = [&] { return model_of(SmallModel{.type = type}.config()); };
    for (const int size : {2, 4}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        const EngineOptions options = small_options(seed == 1, seed == 3 ? 3 : 0);
        generated += expect_same_group(make, size, options, seed, text_of(type, " on ", size));
      }
    }
  }
  EXPECT_GT(generated, 3000);
}

TEST(EngineGroup, DividesExpertsAndLatentHeads) {
  std::int64_t generated = 0;
  for (const auto& [family, config] : mixtures()) {
    for (const int size : {2, 4}) {
      generated += expect_same_group([&] { return mixture_of(family); }, size, small_options(size == 2, 0), 1,
                                     text_of(family, " on ", size));
    }
  }
  for (const bool absorbed : {false, true}) {
    EngineOptions options = small_options(false, absorbed ? 1 : 0);
    if (absorbed) options.speculative_method = SpeculativeMethod::kMtp;
    options.cache.latent_kv_cache = true;
    if (absorbed) options.cache.latent_attention = LatentForm::kAbsorbed;
    const auto make = [&] {
      std::unique_ptr<Model> model = mixture_of("deepseek_v3");
      prepare_model(*model, options);
      return model;
    };
    generated += expect_same_group(make, 2, options, 2, absorbed ? "absorbed" : "latent rows");
  }
  EXPECT_GT(generated, 2000);
}

// Weights that sleep, wake and change, and embeddings between requests.
TEST(EngineGroup, SleepsWakesAndChangesItsWeights) {
  const std::string config = SmallModel{.type = "qwen3"}.config();
  const Tokenizer tokenizer = letter_tokenizer(kVocabulary);
  const std::unique_ptr<Model> whole = model_of(config);
  const TemporaryDirectory folder;
  save_model(folder.path(), *whole, random_weights(*whole, 9, DType::kF32, cpu_device()), nullptr);
  const Request request{.prompt = {1, 2, 3, 4, 5},
                        .sampling = {.temperature = 0, .max_tokens = 20, .detokenize = false}};
  const std::vector<std::vector<TokenId>> inputs{{1, 2, 3}, {4, 5, 6, 7, 8}};
  const EngineOptions options = small_options(false, 0);
  const EmbedderOptions embeddings{.pooling = Pooling::kMean, .max_model_len = 128};

  struct Seen {
    std::vector<std::vector<TokenId>> tokens;
    std::vector<std::vector<float>> embeddings;
  };
  const auto use = [&](ResidentModel& resident) {
    Seen seen;
    const auto look = [&] {
      seen.tokens.push_back(resident.engine().generate({&request, 1})[0].tokens);
      for (auto& one : resident.embedder().embed(inputs)) seen.embeddings.push_back(std::move(one));
    };
    look();
    resident.sleep(SleepLevel::kKeepWeights);
    EXPECT_EQ(resident.bytes(), 0u);
    resident.wake_weights();
    resident.wake_cache();
    look();
    EXPECT_THROW(resident.update(folder.path() / "none"), Error);
    EXPECT_TRUE(resident.has_whole_weights());
    resident.update(folder.path());
    look();
    resident.sleep(SleepLevel::kDropWeights);
    resident.wake_weights();
    resident.wake_cache();
    EXPECT_FALSE(resident.has_whole_weights());
    resident.update(folder.path());
    EXPECT_TRUE(resident.has_whole_weights());
    look();
    return seen;
  };

  ResidentModel alone(*whole, tokenizer, random_parts(*whole), options, embeddings);
  const Seen one = use(alone);
  EXPECT_EQ(one.tokens[0], one.tokens[1]);
  EXPECT_EQ(one.tokens[2], one.tokens[3]);
  EXPECT_NE(one.tokens[0], one.tokens[2]);
  for (const int size : {2, 4}) {
    Seen seen;
    run_engine_group([&] { return model_of(config); }, size,
                     [&](EngineGroup& group, const Model& part, TensorStore parts) {
                       ResidentModel resident(part, tokenizer, std::move(parts), options, embeddings, &group);
                       seen = use(resident);
                     });
    EXPECT_EQ(seen.tokens, one.tokens);
    ASSERT_EQ(seen.embeddings.size(), one.embeddings.size());
    for (std::size_t i = 0; i < one.embeddings.size(); ++i)
      EXPECT_LT(relative_difference(seen.embeddings[i], one.embeddings[i]), 1e-5) << i;
  }
}

// Tensors of a checkpoint as a trainer sends them: as they are stored, or converted to another type.
std::vector<std::pair<TensorNotice, std::vector<std::byte>>> sent_tensors(const fs::path& folder, StoredType type) {
  const SafetensorsFile file(folder / "model.safetensors");
  std::vector<std::pair<TensorNotice, std::vector<std::byte>>> sent;
  for (const StoredTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
    if (const auto dtype = dtype_of(type); type != tensor.type) {
      bytes.resize(static_cast<std::size_t>(tensor.element_count()) * size_of(*dtype));
      read_as(tensor, *dtype, bytes);
    }
    sent.push_back({{.name = tensor.name, .type = type, .shape = tensor.shape}, std::move(bytes)});
  }
  return sent;
}

const std::map<std::string, std::string>& sent_models() {
  static const std::map<std::string, std::string> models{
      {"qwen2", SmallModel{.type = "qwen2"}.config()},
      {"qwen3 tied", SmallModel{.type = "qwen3", .tied = true}.config()},
      {"llama odd", SmallModel{.type = "llama", .vocabulary = 309}.config()},
      {"gpt2", SmallModel{.type = "gpt2"}.config()}};
  return models;
}

TEST(EngineGroup, HasItsPartsOfSentTensors) {
  register_operations();
  for (const auto& [name, config] : sent_models()) {
    const TemporaryDirectory folder;
    const std::unique_ptr<Model> whole = model_of(config);
    save_model(folder.path(), *whole, random_weights(*whole, 9, DType::kF32, cpu_device()), nullptr);
    // f64 goes through host memory, bf16 is converted on the device.
    for (const auto& [type, held] : {std::pair{StoredType::kF32, DType::kF32},
                                     {StoredType::kF32, DType::kBf16},
                                     {StoredType::kF64, DType::kF32}}) {
      const TensorStore expected = load_weights(*whole, ModelDirectory(folder.path()), held, cpu_device());
      for (int rank = 0; rank < 4; ++rank) {
        const TensorParallelModel part(model_of(config), rank, 4);
        TensorStore parts(cpu_device(), weight_types(part, held));
        ReceivedTensors tensors(part);
        tensors.begin();
        for (const auto& [notice, bytes] : sent_tensors(folder.path(), type)) {
          tensors.check(notice);
          tensors.load(notice, bytes.data(), parts);
        }
        EXPECT_TRUE(tensors.has_all());
        for (std::size_t i = 0; i < part.weights().size(); ++i) {
          const std::string& block = part.weights()[i].name;
          EXPECT_EQ(parts.download(block), part_of(part, i, expected)) << name << ", " << block << ", rank " << rank;
        }
        TensorNotice wrong = sent_tensors(folder.path(), type)[0].first;
        wrong.shape[0] /= 4;
        EXPECT_THROW(tensors.check(wrong), Error);
      }
    }
  }
}

TEST(EngineGroup, GeneratesWithTensorsThatATrainerSends) {
  const Tokenizer tokenizer = letter_tokenizer(kVocabulary);
  const Request request{.prompt = {1, 2, 3, 4, 5},
                        .sampling = {.temperature = 0, .max_tokens = 20, .detokenize = false}};
  for (const auto& [name, config] : sent_models()) {
    const TemporaryDirectory folder;
    const std::unique_ptr<Model> whole = model_of(config);
    save_model(folder.path(), *whole, random_weights(*whole, 9, DType::kF32, cpu_device()), nullptr);
    const auto sent = sent_tensors(folder.path(), StoredType::kF32);
    for (const int size : {2, 4}) {
      const auto lead = [&](EngineGroup& group, const Model& part, TensorStore parts) {
        ResidentModel resident(part, tokenizer, std::move(parts), small_options(false, 0), std::nullopt, &group);
        const auto tokens = [&] { return resident.engine().generate({&request, 1})[0].tokens; };
        const std::vector<TokenId> before = tokens();
        ReceivedTensors tensors(part);
        tensors.begin();
        // Up to three tensors together, as packed buffers have them.
        for (std::size_t first = 0; first < sent.size(); first += 3) {
          std::vector<TensorNotice> notices;
          std::vector<std::byte> bytes;
          for (std::size_t i = first; i < std::min(first + 3, sent.size()); ++i) {
            notices.push_back(sent[i].first);
            bytes.insert(bytes.end(), sent[i].second.begin(), sent[i].second.end());
          }
          resident.load(tensors, notices, bytes.data());
          if (first == 0) {
            resident.weights_changed(false);
            EXPECT_FALSE(resident.is_ready());
          }
        }
        resident.weights_changed(tensors.has_all());
        EXPECT_TRUE(resident.is_ready());
        const std::vector<TokenId> after = tokens();
        EXPECT_NE(after, before) << name;
        resident.sleep(SleepLevel::kKeepWeights);
        resident.wake_weights();
        resident.wake_cache();
        EXPECT_EQ(tokens(), after) << name;
        resident.update(folder.path());
        EXPECT_EQ(tokens(), after) << name;
      };
      run_engine_group([&] { return model_of(config); }, size, lead);
    }
  }
}

// A CPU whose host has no memory for what is copied from it, while that is so.
class FullHost final : public MeteredDevice {
 public:
  void download(void* host, const std::byte* device, std::size_t bytes) override {
    if (is_full) throw std::bad_alloc();
    MeteredDevice::download(host, device, bytes);
  }

  std::atomic<bool> is_full = false;
};

// If one rank cannot keep its weights, no rank sleeps, and all generate as before.
TEST(EngineGroup, SleepsOnAllRanksOrOnNone) {
  const std::string config = SmallModel{.type = "qwen3"}.config();
  const Tokenizer tokenizer = letter_tokenizer(kVocabulary);
  const Request request{.prompt = {1, 2, 3, 4, 5},
                        .sampling = {.temperature = 0, .max_tokens = 20, .detokenize = false}};
  for (int full = 0; full < 2; ++full) {
    std::array<FullHost, 2> devices;
    const auto load = [&](const Model& part, int rank) {
      const TensorStore parts = random_parts(part);
      TensorStore moved(devices[static_cast<std::size_t>(rank)], parts.tensors());
      for (const NamedType& tensor : parts.tensors()) moved.upload(tensor.name, parts.download(tensor.name));
      return moved;
    };
    const auto lead = [&](EngineGroup& group, const Model& part, TensorStore parts) {
      ResidentModel resident(part, tokenizer, std::move(parts), small_options(false, 0), std::nullopt, &group);
      const auto tokens = [&] { return resident.engine().generate({&request, 1})[0].tokens; };
      const std::vector<TokenId> expected = tokens();
      devices[static_cast<std::size_t>(full)].is_full = true;
      EXPECT_THAT(error_text([&] { resident.sleep(SleepLevel::kKeepWeights); }),
                  testing::HasSubstr("do not fit in host memory"));
      devices[static_cast<std::size_t>(full)].is_full = false;
      for (int i = 0; i < 2; ++i) {
        resident.wake_weights();
        resident.wake_cache();
        EXPECT_TRUE(resident.is_ready());
        EXPECT_EQ(tokens(), expected);
        resident.sleep(SleepLevel::kKeepWeights);
        EXPECT_TRUE(resident.is_asleep());
      }
    };
    run_engine_group([&] { return model_of(config); }, 2, lead, load);
  }
}

// A rank has the bytes and scales that the whole model has of its part.
TEST(EngineGroup, HasTheFp8WeightsOfTheWhole) {
  const std::string config = R"({"model_type": "qwen2", "vocab_size": 308, "hidden_size": 512, "intermediate_size": 768,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 256,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false, "initializer_range": 0.1})";
  const TemporaryDirectory folder;
  const std::unique_ptr<Model> plain = model_of(config);
  save_model(folder.path(), *plain, random_weights(*plain, 4, DType::kBf16, cpu_device()), nullptr);
  const ModelDirectory directory(folder.path());
  const Fp8Model whole(model_of(config));
  const TensorStore weights = load_weights(whole, directory, DType::kBf16, cpu_device());
  const Tokenizer tokenizer = letter_tokenizer(kVocabulary);
  Request request{.prompt = {1, 2, 3, 4, 5, 6, 7, 8}, .sampling = {.max_tokens = 1, .detokenize = false}};
  request.sampling.prompt_logprobs = 0;
  const EngineOptions options = small_options(false, 0);
  Engine alone(whole, tokenizer, weights, std::make_shared<Arena>(cpu_device()), options);
  const std::vector<float> expected = alone.generate({&request, 1})[0].prompt_logps;

  constexpr int kSize = 2;
  for (int rank = 0; rank < kSize; ++rank) {
    const Fp8Model part(std::make_unique<TensorParallelModel>(model_of(config), rank, kSize));
    TensorStore parts = load_weights(part, directory, DType::kBf16, cpu_device());
    std::size_t blocks = 0;
    for (const WeightSpec& spec : part.weights()) {
      if (!is_fp8_block(spec)) continue;
      ++blocks;
      const WeightSpec& of = *std::ranges::find(whole.weights(), spec.name, &WeightSpec::name);
      std::vector<std::byte> bytes = weights.download(spec.name);
      put_part(spec, of, 1, parts.download(spec.name), bytes);
      EXPECT_EQ(bytes, weights.download(spec.name)) << spec.name << ", rank " << rank;
      const auto total = [](const TensorStore& store, const std::string& name) {
        double sum = 0;
        for (const float scale : floats_of(store.download(name))) sum += static_cast<double>(scale);
        return sum;
      };
      EXPECT_GT(total(parts, fp8_scale_name(spec.name)), 0.0);
      EXPECT_LT(total(parts, fp8_scale_name(spec.name)), total(weights, fp8_scale_name(spec.name)));
    }
    EXPECT_EQ(blocks, 8u);
    // In place, from the same folder.
    std::vector<std::vector<std::byte>> before;
    for (const NamedType& tensor : parts.tensors()) before.push_back(parts.download(tensor.name));
    bool begun = false;
    reload_weights(part, directory, parts, begun);
    EXPECT_TRUE(begun);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(parts.download(parts.tensors()[i].name), before[i]);
  }
  const auto load = [&](const Model& part, int) { return load_weights(part, directory, DType::kBf16, cpu_device()); };
  const auto lead = [&](EngineGroup& group, const Model& part, const TensorStore& parts) {
    Engine engine(part, tokenizer, parts, std::make_shared<Arena>(cpu_device()), options, &group);
    const std::vector<float> logps = engine.generate({&request, 1})[0].prompt_logps;
    ASSERT_EQ(logps.size(), expected.size());
    for (std::size_t i = 0; i < logps.size(); ++i) EXPECT_NEAR(logps[i], expected[i], 0.05) << i;
  };
  run_engine_group([&] { return model_of(config); }, kSize, lead, load, true);
  ASSERT_EQ(expected.size(), 7u);
}

}  // namespace
}  // namespace hone::test

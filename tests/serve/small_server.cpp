#include "serve/small_server.h"

#include "core/json_value.h"
#include "model/adapter_files.h"
#include "model/adapter_slots.h"
#include "model/registry.h"
#include "model/weights.h"
#include "serve/request_error.h"
#include "support/device.h"
#include "text/bpe_trainer.h"

namespace hone::test {
namespace {

Tokenizer small_tokenizer() {
  BpeTrainer trainer({.vocab_size = 320,
                      .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
                      .eos_token = "<|endoftext|>"});
  trainer.add("What is 1 + 2? The answer is 3. <think> </think> naïve 日本 🙂 <tool_call>");
  return trainer.train();
}

std::unique_ptr<Model> small_network() {
  return family_registry().create(Json::parse(R"({"model_type": "qwen3", "vocab_size": 320, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "max_position_embeddings": 100000, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
    "initializer_range": 0.3})"));
}

std::unique_ptr<Model> served_network(std::int64_t slots) {
  if (slots == 0) return small_network();
  return std::make_unique<AdapterSlots>(small_network(), slots, 8);
}

// The base's weights as the server has them, and an adapter of random values.
TensorStore adapter_weights(const LoraModel& model, std::uint64_t seed) {
  TensorStore weights = random_weights(model, seed, DType::kF32, test_device());
  const TensorStore base = random_weights(model.base(), 1, DType::kF32, test_device());
  for (const NamedType& tensor : base.tensors()) weights.upload(tensor.name, base.download(tensor.name));
  return weights;
}

}  // namespace

SmallServer::SmallServer(SmallServerOptions options)
    : options_(std::move(options)),
      network_(served_network(options_.adapter_slots)),
      served_{.names = {"small", "other"},
              .path = "small",
              .tokenizer = small_tokenizer(),
              .chat_template = ChatTemplate(options_.chat_template.empty() ? std::string(chatml_template())
                                                                           : options_.chat_template),
              .stop_token_ids = {},
              .defaults = {},
              .default_max_tokens = std::nullopt,
              .max_model_len = options_.max_model_len,
              .vocab_size = 320,
              .created = 1},
      metrics_("small", options_.max_model_len) {
  served_.grammars = std::make_shared<GrammarCompiler>(served_.tokenizer, served_.vocab_size);
  served_.stop_token_ids = {*served_.tokenizer.eos_token_id()};
  apply_generation_config(options_.generation_config, served_);
  if (options_.embeddings)
    served_.embeddings = ServedEmbeddings{.size = 32, .is_matryoshka = options_.is_matryoshka, .dimensions = {}};
  resident_ = std::make_unique<ResidentModel>(*network_, served_.tokenizer,
                                              random_weights(*network_, 1, DType::kF32, test_device()),
                                              engine_options(), embedder_options());
  const auto* slots = dynamic_cast<const AdapterSlots*>(network_.get());
  if (slots != nullptr) served_.adapters = std::make_shared<AdapterTable>(*slots, DType::kF32);
  loop_ = std::make_unique<EngineLoop>(*resident_, metrics_, options_.max_requests, slots);
  std::shared_ptr<WeightTransfer> transfer;
  if (options_.broadcasts) transfer = std::make_shared<WeightTransfer>(*network_, *options_.broadcasts, "127.0.0.1");
  service_ = std::make_unique<Service>(served_, *loop_, metrics_,
                                       ServiceOptions{.version = "1.2.3",
                                                      .api_key = options_.api_key,
                                                      .allow_weight_updates = options_.allow_weight_updates,
                                                      .page = options_.page,
                                                      .runs = options_.runs,
                                                      .transfer = std::move(transfer)});
  options_.http.error_body = [](int status, std::string_view message) { return error_body(message, {}, status); };
  server_ = std::make_unique<HttpServer>(
      options_.http, [this](const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
        service_->handle(request, reply);
      });
  engine_thread_ = std::thread([this] {
    const auto stops = [this] {
      run_work();
      return stops_.load();
    };
    loop_->run(stops, options_.shutdown_timeout);
  });
}

SmallServer::~SmallServer() {
  stop();
  server_.reset();
}

EngineOptions SmallServer::engine_options() const {
  EngineOptions options = plain_options();
  options.adapter_slots = options_.adapter_slots;
  return options;
}

EngineOptions SmallServer::plain_options() const {
  return resolved({.max_model_len = options_.max_model_len,
                   .max_num_seqs = options_.max_num_seqs,
                   .max_batch_tokens = 64,
                   .block_size = 16,
                   .num_blocks = options_.num_blocks,
                   .adjust_logits = true,
                   .max_logprobs = kMaxTopLogprobs,
                   .max_prompt_samples = 5});
}

void SmallServer::on_device(const std::function<void()>& work) const {
  if (test_device().kind() == DeviceKind::kCpu || !engine_thread_.joinable()) return work();
  std::unique_lock lock(mutex_);
  work_ = &work;
  done_.wait(lock, [&] { return work_ == nullptr; });
}

void SmallServer::run_work() {
  const std::lock_guard lock(mutex_);
  if (work_ == nullptr) return;
  (*work_)();
  work_ = nullptr;
  done_.notify_all();
}

void SmallServer::write_weights(const std::filesystem::path& folder, std::uint64_t seed,
                                const std::function<void(Json& config)>& change) const {
  on_device(
      [&] { save_model(folder, *network_, random_weights(*network_, seed, DType::kF32, test_device()), nullptr); });
  if (!change) return;
  Json config = read_json(folder / "config.json");
  change(config);
  write_json(folder / "config.json", config);
}

void SmallServer::write_adapter(const std::filesystem::path& folder, const LoraConfig& config,
                                std::uint64_t seed) const {
  const LoraModel model(small_network(), config);
  on_device([&] { save_adapter(folder, model, adapter_weights(model, seed), nullptr); });
}

Completion SmallServer::adapted(const Request& request, const LoraConfig& config, std::uint64_t seed) const {
  const LoraModel model(small_network(), config);
  Completion completion;
  on_device([&] {
    const TensorStore weights = adapter_weights(model, seed);
    Engine engine(model, served_.tokenizer, weights, std::make_shared<Arena>(test_device()), plain_options());
    completion = engine.generate({&request, 1})[0];
  });
  return completion;
}

Completion SmallServer::generated(const Request& request, std::uint64_t seed) {
  const std::unique_ptr<Model> network = small_network();
  Completion completion;
  on_device([&] {
    const TensorStore weights = random_weights(*network, seed, DType::kF32, test_device());
    Engine engine(*network, served_.tokenizer, weights, std::make_shared<Arena>(test_device()), plain_options());
    completion = engine.generate({&request, 1})[0];
  });
  return completion;
}

std::optional<EmbedderOptions> SmallServer::embedder_options() const {
  if (!options_.embeddings) return std::nullopt;
  return EmbedderOptions{.pooling = *options_.embeddings,
                         .max_model_len = options_.max_model_len,
                         .max_batch_tokens = 64,
                         .block_size = 16,
                         .adapter_slots = options_.adapter_slots > 0};
}

std::vector<std::vector<float>> SmallServer::embedded(const std::vector<std::vector<TokenId>>& inputs,
                                                      std::uint64_t seed) const {
  const std::unique_ptr<Model> network = small_network();
  std::vector<std::vector<float>> embeddings;
  on_device([&] {
    const TensorStore weights = random_weights(*network, seed, DType::kF32, test_device());
    Embedder embedder(*network, weights, std::make_shared<Arena>(test_device()),
                      {.pooling = *options_.embeddings, .max_model_len = options_.max_model_len});
    for (const auto& input : inputs) embeddings.push_back(embedder.embed({input})[0]);
  });
  return embeddings;
}

RawResponse SmallServer::post(std::string_view path, const Json& body) const {
  return fetch(port(), "POST", path, body.dump());
}

void SmallServer::stop() {
  stops_ = true;
  if (engine_thread_.joinable()) engine_thread_.join();
}

std::vector<std::string> events_of(const std::string& stream) {
  std::vector<std::string> events;
  for (std::size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = stream.find("\n\n", at);
    events.push_back(stream.substr(at + 6, end - at - 6));
    at = end == std::string::npos ? stream.size() : end;
  }
  return events;
}

}  // namespace hone::test

// Answers with a model in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/chat/answerer.h"
#include "data/encode.h"
#include "engine/engine.h"
#include "model/loaded_model.h"

namespace hone {

class LocalAnswerer : public Answerer {
 public:
  // Allocates an engine for one sequence. `loaded` must outlive the object. group: as for Engine. Throws Error if
  // max_model_len exceeds the model's positions or the engine does not fit into memory.
  LocalAnswerer(const ChatOptions& options, LoadedModel& loaded, EngineGroup* group = nullptr);

  [[nodiscard]] ChatAnswer answer(const ChatTurn& turn, const std::function<void(AnswerPiece)>& show) override;
  void options_changed(const ChatOptions& options) override;

 private:
  void make_engine(const ChatOptions& options);
  void check_room(const Json& messages, std::int64_t prompt_tokens) const;
  [[nodiscard]] std::string max_model_len_hint() const;
  [[nodiscard]] std::string cut_text(std::int64_t prompt_tokens, const Completion& completion) const;

  LoadedModel& loaded_;
  EngineGroup* group_;
  ChatTemplate template_;
  std::vector<TokenId> stop_token_ids_;
  std::unique_ptr<Engine> engine_;
  bool adjusts_logits_ = false;  // the engine has the memory for it
  std::int64_t max_model_len_ = 0;
};

}  // namespace hone

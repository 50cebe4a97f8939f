// A request for embeddings, as the engine's thread takes it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "serve/generation_job.h"

namespace hone {

// Receives the embeddings of a job: the engine's thread sets them and then reports progress, once. add() formats them,
// on the thread that calls sinks.
class EmbeddingSink : public GenerationSink {
 public:
  void set(std::vector<std::vector<float>> embeddings) { embeddings_ = std::move(embeddings); }

 protected:
  std::vector<std::vector<float>> embeddings_;  // [inputs][hidden_size]
};

struct EmbeddingJob {
  std::vector<std::vector<TokenId>> inputs;  // at least one
  std::shared_ptr<EmbeddingSink> sink;
};

}  // namespace hone

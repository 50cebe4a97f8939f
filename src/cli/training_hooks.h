// What a training command does beside training: pushes to the hub, benchmarks of checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json_value.h"
#include "core/options.h"
#include "train/model_card.h"
#include "train/options.h"
#include "train/run_observer.h"

namespace hone {

class TrainingHooks {
 public:
  // Checks what the keys ask for, benchmarks' problems and the hub, before anything is trained or written. Throws
  // Error.
  template <class Options>
  TrainingHooks(const std::string& command, const Options& options, const OptionInput& input)
      : TrainingHooks(command, options, prompt_of(options), defaults_of<Options>(), input) {}

  // Who is to be told of the run; they live as long as this.
  [[nodiscard]] std::vector<RunObserver*> observers() const;

 private:
  // How a model is asked.
  struct Prompt {
    std::string system, chat_template;
  };
  TrainingHooks(const std::string& command, const TrainingOptions& options, const Prompt& prompt,
                const std::string& defaults, const OptionInput& input);

  template <class Options>
  static Prompt prompt_of(const Options& options) {
    if constexpr (requires { options.system_prompt; }) return {options.system_prompt, options.chat_template};
    return {};
  }
  template <class Options>
  static std::string defaults_of() {
    Options defaults;
    return computed_keys(OptionTable(defaults)).dump();
  }

  std::vector<std::unique_ptr<RunObserver>> observers_;
};

}  // namespace hone

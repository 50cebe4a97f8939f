// Sets up the work that a training command does in addition to training: pushing checkpoints to the Hugging Face hub
// and scoring them on benchmarks. Both are observers of the run.
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
  // Reads the problems of the benchmarks and checks the access to the hub, so that an error in these keys shows before
  // anything is trained or written. `command` is pretrain, sft or grpo. Throws Error.
  template <class Options>
  TrainingHooks(const std::string& command, const Options& options, const OptionInput& input)
      : TrainingHooks(command, options, prompt_of(options), defaults_of<Options>(), input) {}

  // Observers to register with the run. They are valid as long as this object.
  [[nodiscard]] std::vector<RunObserver*> observers() const;

 private:
  // Prompt settings for the problems of a benchmark.
  struct Prompt {
    std::string system, chat_template;
  };
  TrainingHooks(const std::string& command, const TrainingOptions& options, const Prompt& prompt,
                const std::string& defaults, const OptionInput& input);

  // Returns the settings of a command that has them. Pre-training has none.
  template <class Options>
  static Prompt prompt_of(const Options& options) {
    if constexpr (requires { options.system_prompt; }) return {options.system_prompt, options.chat_template};
    return {};
  }
  // Computed keys of the default options as JSON; the model card leaves out what equals them.
  template <class Options>
  static std::string defaults_of() {
    Options defaults;
    return computed_keys(OptionTable(defaults)).dump();
  }

  std::vector<std::unique_ptr<RunObserver>> observers_;
};

}  // namespace hone

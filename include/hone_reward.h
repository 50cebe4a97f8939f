/* Interface of a reward for `hone grpo` in a shared object. docs/rewards.md has an example. */
#ifndef HONE_REWARD_H
#define HONE_REWARD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HONE_REWARD_SCORED = 0,     /* *score is the reward, a finite number */
  HONE_REWARD_NO_OPINION = 1, /* the completion gets no score from this reward */
  HONE_REWARD_FAILED = 2      /* ends the run; print the reason to standard error */
};

/* Scores one completion. The shared object defines this function.

   `json` is one JSON object in UTF-8: `size` bytes without a line break, followed by a zero byte. Its fields:
     completion   string: text of the completion
     row          object: columns of the prompt's row
     group        number: index of the prompt in the batch; completions of one prompt share it
     token_count  number: tokens of the completion
     ended        boolean: true if the model ended the completion, false if max_completion_length cut it
   `score` receives the reward if the result is HONE_REWARD_SCORED.

   Returns one of the values above. It is called once for each completion of a batch, in order, by one thread. A
   separate process loads the shared object for each batch. */
int hone_reward(const char* json, size_t size, double* score);

#ifdef __cplusplus
}
#endif

#endif

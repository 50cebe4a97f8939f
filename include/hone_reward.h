/* A reward of one's own for `hone grpo`, as a shared object. docs/rewards.md has an example. */
#ifndef HONE_REWARD_H
#define HONE_REWARD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HONE_REWARD_SCORED = 0,     /* *score is the reward, a finite number */
  HONE_REWARD_NO_OPINION = 1, /* the completion has no score of this reward */
  HONE_REWARD_FAILED = 2      /* ends the run; say why on standard error */
};

/* The shared object defines this function. `json` is one JSON object in UTF-8, `size` bytes without a line break,
   followed by a zero byte:
     completion   text: the assistant's
     row          object: the columns of the prompt's row
     group        number: completions of one prompt share it
     token_count  number: tokens of the completion
     ended        true where it ended by itself, false where max_completion_length cut it
   It is called once for each completion of a batch, in order, by one thread, in a process of its own that lives as long
   as the batch. */
int hone_reward(const char* json, size_t size, double* score);

#ifdef __cplusplus
}
#endif

#endif

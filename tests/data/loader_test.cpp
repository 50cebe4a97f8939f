#include "data/loader.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/split.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Example i has i % 5 + 2 tokens i * 100, i * 100 + 1, ...; in every third example only the last token is a target.
ExampleSet some_examples(std::int64_t count, TokenId shift = 0) {
  ExampleSetBuilder builder;
  for (std::int64_t i = 0; i < count; ++i) {
    TokenizedExample example;
    for (std::int64_t t = 0; t < i % 5 + 2; ++t) example.tokens.push_back(static_cast<TokenId>(i * 100 + t) + shift);
    if (i % 3 == 2) {
      example.is_target.assign(example.tokens.size(), 0);
      example.is_target.back() = 1;
    }
    builder.add(example);
  }
  return std::move(builder).finish();
}

std::unique_ptr<BatchLoader> row_loader(const ExampleSet& set, const RowLoaderOptions& options,
                                        Packing packing = Packing::kBfd) {
  return make_row_loader(set, pack(set, all_examples(set.size()), packing, 8), options);
}

TEST(HostBatch, TargetsPositionsAndMask) {
  ExampleSetBuilder builder;
  builder.add({.tokens = {10, 11, 12}, .is_target = {}});
  builder.add({.tokens = {20, 21, 22, 23}, .is_target = {0, 0, 1, 1}});
  const ExampleSet set = std::move(builder).finish();
  HostBatch batch;
  append_document(batch, set[0], 0, 3, LookAhead::kNo);
  append_document(batch, set[1], 0, 4, LookAhead::kNo);
  EXPECT_THAT(batch.tokens, ElementsAre(10, 11, 12, 20, 21, 22, 23));
  EXPECT_THAT(batch.targets, ElementsAre(11, 12, -1, 21, 22, 23, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 2, 3));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 3, 7));
  EXPECT_THAT(batch.loss_weights, ElementsAre(1, 1, 0, 0, 1, 1, 0));
  EXPECT_EQ(batch.target_tokens, 4);
  EXPECT_EQ(batch.document_count(), 2);
}

TEST(HostBatch, PartsOfADocument) {
  ExampleSetBuilder builder;
  builder.add({.tokens = {1, 2, 3, 4}, .is_target = {0, 1, 0, 1}});
  const ExampleSet set = std::move(builder).finish();
  HostBatch within;
  append_document(within, set[0], 1, 2, LookAhead::kNo);
  EXPECT_THAT(within.targets, ElementsAre(3, -1));
  EXPECT_THAT(within.positions, ElementsAre(0, 1));
  EXPECT_THAT(within.loss_weights, ElementsAre(0, 0));
  HostBatch ahead;
  append_document(ahead, set[0], 1, 2, LookAhead::kYes);
  EXPECT_THAT(ahead.targets, ElementsAre(3, 4));
  EXPECT_THAT(ahead.loss_weights, ElementsAre(0, 1));
}

TEST(ExampleSet, MaskAppearsWithTheFirstMaskedExample) {
  ExampleSetBuilder builder;
  builder.add({.tokens = {1, 2}, .is_target = {}});
  builder.add({.tokens = {3}, .is_target = {0}});
  builder.add({.tokens = {4}, .is_target = {}});
  const ExampleSet set = std::move(builder).finish();
  EXPECT_THAT(set.is_target(), ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(set[1].is_target, ElementsAre(0));
  EXPECT_TRUE(some_examples(2)[0].is_target.empty());
}

TEST(ExampleSet, SliceCutsDocuments) {
  const ExampleSet set = some_examples(4);  // lengths 2, 3, 4, 5
  const ExampleSet part = set.slice(3, 10);
  ASSERT_EQ(part.size(), 3);
  EXPECT_THAT(part[0].tokens, ElementsAre(101, 102));
  EXPECT_THAT(part[1].tokens, ElementsAre(200, 201, 202, 203));
  EXPECT_THAT(part[1].is_target, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(part[2].tokens, ElementsAre(300));
  EXPECT_EQ(set.slice(5, 5).size(), 0);
}

TEST(RowLoader, AnEpochHoldsEveryTokenOnceAndNoPadding) {
  const ExampleSet set = some_examples(53);
  for (const Packing packing : {Packing::kNone, Packing::kBfd, Packing::kWrapped}) {
    const auto loader = row_loader(set, {.rows_per_batch = 4}, packing);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<TokenId> seen;
      for (std::int64_t i = 0; i < loader->batches_per_epoch(); ++i) {
        const HostBatch batch = loader->next();
        seen.insert(seen.end(), batch.tokens.begin(), batch.tokens.end());
        EXPECT_LE(batch.token_count(), loader->limits().tokens);
        EXPECT_LE(batch.document_count(), loader->limits().documents);
        EXPECT_EQ(batch.cu_seqlens.back(), batch.token_count());
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), set.tokens().begin(), set.tokens().end()));
    }
  }
}

TEST(RowLoader, ResumesAtEveryPosition) {
  const ExampleSet set = some_examples(31);
  const RowLoaderOptions options{.rows_per_batch = 3, .seed = 5};
  const auto whole = row_loader(set, options);
  std::vector<HostBatch> batches;
  std::vector<Json> states;
  for (std::int64_t i = 0; i < 3 * whole->batches_per_epoch() + 1; ++i) {
    states.push_back(Json::parse(whole->state().dump()));
    batches.push_back(whole->next());
  }
  for (std::size_t start = 0; start < states.size(); ++start) {
    const auto resumed = row_loader(set, options);
    resumed->restore(states[start]);
    for (std::size_t i = start; i < batches.size(); ++i) ASSERT_EQ(resumed->next(), batches[i]) << start << " " << i;
  }
}

TEST(RowLoader, OrderDependsOnSeedAndEpoch) {
  const ExampleSet set = some_examples(40);
  const auto a = row_loader(set, {.rows_per_batch = 2, .seed = 1});
  const auto b = row_loader(set, {.rows_per_batch = 2, .seed = 1});
  const auto c = row_loader(set, {.rows_per_batch = 2, .seed = 2});
  EXPECT_EQ(a->batch_at({0, 0}), b->batch_at({0, 0}));
  EXPECT_NE(a->batch_at({0, 0}), c->batch_at({0, 0}));
  EXPECT_NE(a->batch_at({0, 0}), a->batch_at({1, 0}));
  EXPECT_EQ(a->batch_at({1, 3}), b->batch_at({1, 3}));
}

TEST(RowLoader, LastPartialBatch) {
  const ExampleSet set = some_examples(7);
  const auto keep = row_loader(set, {.rows_per_batch = 3, .shuffle = false}, Packing::kNone);
  const auto drop = row_loader(set, {.rows_per_batch = 3, .shuffle = false, .drop_last = true}, Packing::kNone);
  EXPECT_EQ(keep->batches_per_epoch(), 3);
  EXPECT_EQ(drop->batches_per_epoch(), 2);
  EXPECT_THAT(keep->batch_at({0, 2}).tokens, ElementsAre(600, 601, 602));
  EXPECT_THAT(keep->batch_at({0, 0}).cu_seqlens, ElementsAre(0, 2, 5, 9));
  for (int i = 0; i < 2; ++i) (void)drop->next();
  EXPECT_EQ(drop->position(), (LoaderPosition{1, 0}));
}

std::string restore_error(BatchLoader& loader, const Json& state) {
  try {
    loader.restore(state);
  } catch (const Error& error) {
    return error.what();
  }
  return "restored";
}

TEST(RowLoader, RefusesAForeignState) {
  const auto loader = row_loader(some_examples(20), {.rows_per_batch = 2, .seed = 1});
  const Json state = loader->state();
  EXPECT_EQ(restore_error(*loader, state), "restored");
  EXPECT_THAT(restore_error(*row_loader(some_examples(20), {.rows_per_batch = 2, .seed = 9}), state),
              HasSubstr("seed: was 1 in the checkpoint and is 9 now"));
  EXPECT_THAT(restore_error(*row_loader(some_examples(20), {.rows_per_batch = 4, .seed = 1}), state),
              HasSubstr("per_device_train_batch_size: was 2"));
  EXPECT_THAT(restore_error(*row_loader(some_examples(20, 1), {.rows_per_batch = 2, .seed = 1}), state),
              HasSubstr("training data"));
  EXPECT_THAT(restore_error(*row_loader(some_examples(20), {.rows_per_batch = 2, .seed = 1}, Packing::kWrapped), state),
              HasSubstr("training data"));
  Json broken = state;
  broken["index"] = 1000;
  EXPECT_THAT(restore_error(*loader, broken), HasSubstr("epoch 0, batch 1000"));
  broken["index"] = "1";
  EXPECT_THAT(restore_error(*loader, broken), HasSubstr("no usable 'index'"));
  EXPECT_THAT(restore_error(*loader, Json::array()), HasSubstr("no usable"));
}

TEST(RowLoader, RefusesNothingToTrainOn) {
  EXPECT_THROW((void)row_loader(some_examples(0), {}), Error);
  EXPECT_THROW((void)row_loader(some_examples(3), {.rows_per_batch = 0}), Error);
  EXPECT_THROW((void)row_loader(some_examples(3), {.rows_per_batch = 9, .drop_last = true}), Error);
}

// Documents of the given lengths with the tokens 0, 1, 2, ... count - 1.
ExampleSet counting_stream(std::vector<std::int64_t> lengths) {
  ExampleSetBuilder builder;
  TokenId value = 0;
  for (const std::int64_t length : lengths) {
    TokenizedExample example;
    for (std::int64_t t = 0; t < length; ++t) example.tokens.push_back(value++);
    builder.add(example);
  }
  return std::move(builder).finish();
}

TEST(WindowLoader, EveryTokenPredictsItsSuccessor) {
  const auto loader = make_window_loader(counting_stream({50}), {.block_size = 8, .windows_per_batch = 3});
  std::set<TokenId> starts;
  for (int step = 0; step < 400; ++step) {
    const HostBatch batch = loader->next();
    ASSERT_EQ(batch.token_count(), 24);
    ASSERT_EQ(batch.target_tokens, 24);
    EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 8, 16, 24));
    for (std::size_t t = 0; t < 24; ++t) {
      EXPECT_EQ(batch.targets[t], batch.tokens[t] + 1);
      if (t % 8 == 0) {
        starts.insert(batch.tokens[t]);
      } else {
        EXPECT_EQ(batch.tokens[t], batch.tokens[t - 1] + 1);
      }
    }
  }
  EXPECT_EQ(starts.size(), 42u);  // every start in [0, 50 - 8), and no other
  EXPECT_EQ(*starts.rbegin(), 41);
}

TEST(WindowLoader, DocumentsDoNotSeeEachOther) {
  const auto loader = make_window_loader(counting_stream({3, 4, 20}), {.block_size = 6, .windows_per_batch = 1});
  std::int64_t most = 0;
  for (int step = 0; step < 200; ++step) {
    const HostBatch batch = loader->next();
    ASSERT_EQ(batch.token_count(), 6);
    most = std::max(most, batch.document_count());
    for (std::size_t t = 0; t < 6; ++t) {
      const bool ends_document = batch.tokens[t] == 2 || batch.tokens[t] == 6;
      EXPECT_EQ(batch.targets[t], ends_document ? -1 : batch.tokens[t] + 1);
      const bool starts_document = t == 0 || batch.tokens[t] == 3 || batch.tokens[t] == 7;
      EXPECT_EQ(batch.positions[t] == 0, starts_document);
    }
  }
  EXPECT_EQ(most, 3);
  EXPECT_EQ(loader->limits().documents, 3);
}

TEST(WindowLoader, LimitOfDocumentsIsReachedAndNeverPassed) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const RandomStream random(seed, "documents");
    std::vector<std::int64_t> lengths;
    for (std::uint64_t i = 0; i < 12; ++i) lengths.push_back(1 + static_cast<std::int64_t>(random.below(i, 6)));
    const ExampleSet stream = counting_stream(lengths);
    const auto loader = make_window_loader(stream, {.block_size = 7, .windows_per_batch = 1, .seed = seed});
    std::int64_t most = 0;
    for (int step = 0; step < 500; ++step) most = std::max(most, loader->next().document_count());
    EXPECT_LE(most, loader->limits().documents);
    EXPECT_GE(most + 1, loader->limits().documents);  // the last window of the stream is never drawn
  }
}

TEST(WindowLoader, ResumesAtEveryPosition) {
  const WindowLoaderOptions options{.block_size = 8, .windows_per_batch = 2, .seed = 3};
  const auto whole = make_window_loader(counting_stream({100}), options);
  EXPECT_EQ(whole->batches_per_epoch(), 7);
  std::vector<HostBatch> batches;
  std::vector<Json> states;
  for (int i = 0; i < 20; ++i) {
    states.push_back(whole->state());
    batches.push_back(whole->next());
  }
  EXPECT_NE(batches[0], batches[7]);
  for (std::size_t start = 0; start < states.size(); ++start) {
    const auto resumed = make_window_loader(counting_stream({100}), options);
    resumed->restore(states[start]);
    for (std::size_t i = start; i < batches.size(); ++i) ASSERT_EQ(resumed->next(), batches[i]);
  }
}

TEST(WindowLoader, NeedsMoreTextThanAWindow) {
  EXPECT_THROW((void)make_window_loader(counting_stream({8}), {.block_size = 8}), Error);
  EXPECT_EQ(make_window_loader(counting_stream({9}), {.block_size = 8})->next().tokens.front(), 0);
}

TEST(ChunkOrder, WholeChunksOnly) {
  ChunkOrder order(10, 3, 4, true);
  EXPECT_EQ(order.chunks_per_epoch(), 3);
  std::set<std::uint32_t> seen;
  for (std::int64_t i = 0; i < 3; ++i) {
    for (const std::uint32_t prompt : order.at({2, i})) EXPECT_TRUE(seen.insert(prompt).second);
  }
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_THAT(ChunkOrder(4, 2, 0, false).at({5, 1}), ElementsAre(2, 3));
  EXPECT_THROW(ChunkOrder(2, 3, 0, true), Error);
}

TEST(Split, ShuffledPartsAreDisjointAndComplete) {
  const TrainTestSplit split = split_shuffled(101, 0.1, 42);
  EXPECT_EQ(split.test.size(), 11u);
  std::vector<std::uint32_t> both = split.train;
  both.insert(both.end(), split.test.begin(), split.test.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(both, all_examples(101));
  EXPECT_NE(split.test, split_shuffled(101, 0.1, 43).test);
  EXPECT_EQ(split.test, split_shuffled(101, 0.1, 42).test);
  EXPECT_EQ(split_shuffled(10, 4, 1).test.size(), 4u);
  EXPECT_TRUE(split_shuffled(10, 0, 1).test.empty());
  EXPECT_EQ(split_shuffled(10, 0, 1).train, all_examples(10));
}

TEST(Split, BadSizes) {
  for (const double size : {-0.1, 10.0, 11.0, 2.5, 0.99, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW((void)split_shuffled(10, size, 1), Error) << size;
  }
  EXPECT_THROW((void)split_shuffled(1, 0.5, 1), Error);
}

TEST(Split, InOrder) {
  const ExampleSet stream = counting_stream({10});
  const auto parts = split_in_order(stream, std::vector<double>{0.9, 0.1});
  EXPECT_EQ(parts[0].token_count(), 9);
  EXPECT_THAT(parts[1].tokens(), ElementsAre(9));
  const auto three = split_in_order(counting_stream({60, 40}), std::vector<double>{0.9, 0.05, 0.05});
  EXPECT_EQ(three[0].size(), 2);
  EXPECT_EQ(three[1].token_count(), 5);
  EXPECT_EQ(three[2][0].tokens.front(), 95);
  EXPECT_THROW((void)split_in_order(stream, std::vector<double>{0.9, 0.2}), Error);
  EXPECT_THROW((void)split_in_order(stream, std::vector<double>{0.01, 0.99}), Error);
}

}  // namespace
}  // namespace hone

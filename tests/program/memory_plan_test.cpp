// Tests the memory plans of random programs against independently computed lifetimes and against runs in which no two
// values share memory.
#include "program/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "core/random.h"
#include "program/executable.h"
#include "program/test_ops.h"

namespace hone::test {
namespace {

constexpr std::int64_t kInputSize = 100;

// Generates nodes of 1 byte to some KiB that read recent or old values; some update in place, some are views, some have
// a workspace, and some outputs are never read. A value that was updated in place is not read by its old id again.
Program random_program(std::uint64_t seed) {
  const RandomStream random(seed, "memory plan");
  std::uint64_t at = 0;
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random.below(at++, bound)); };
  Program program;
  std::vector<Tensor> usable{program.input("in", {DType::kU8, {kInputSize}})};
  std::vector<Tensor> own;  // the usable values that are activations and may be updated in place
  const std::size_t nodes = 5 + below(60);
  for (std::size_t n = 0; n < nodes; ++n) {
    const auto pick = [&] {
      const std::size_t reach = below(3) == 0 ? usable.size() : std::min<std::size_t>(usable.size(), 4);
      return usable[usable.size() - 1 - below(reach)];
    };
    const std::size_t kind = below(10);
    if (kind < 2 && own.size() > 1) {
      const std::size_t changed = below(own.size());
      const Tensor x = own[changed];
      Tensor other = pick();
      if (program.storage_of(other.id()) == program.storage_of(x.id())) other = usable.front();
      own[changed] = mix_in_place(x, other);
      // x and its views have lost their old content.
      std::erase_if(usable, [&](const Tensor& t) { return program.storage_of(t.id()) == program.storage_of(x.id()); });
      usable.push_back(own[changed]);
    } else if (kind == 2 && !own.empty()) {
      usable.push_back(view_as_column(own[below(own.size())]));
    } else {
      std::vector<Tensor> inputs;
      for (std::size_t i = 0; i <= below(3); ++i) inputs.push_back(pick());
      const auto size = static_cast<std::int64_t>(1 + below(std::size_t{1} << (1 + below(13))));
      const std::int64_t workspace = below(4) == 0 ? static_cast<std::int64_t>(below(3000)) : 0;
      own.push_back(mix(program, inputs, size, workspace));
      usable.push_back(own.back());
    }
  }
  for (std::size_t i = 0; i < 3; ++i) program.output("out" + std::to_string(i), usable[below(usable.size())]);
  return program;
}

struct Piece {
  std::size_t offset, bytes, first, last;
};

// Lists every piece of the arena and its lifetime, computed directly from the definition.
std::vector<Piece> pieces_of(const Program& program, const MemoryPlan& plan) {
  std::map<ValueId, Piece> values;
  const auto use = [&](ValueId id, std::size_t node) {
    const ValueId root = program.storage_of(id);
    if (program.value(root).producer < 0) return;
    const std::size_t offset = plan.value_offset[static_cast<std::size_t>(root)];
    auto& piece = values.try_emplace(root, Piece{offset, program.value(root).type.bytes(), node, node}).first->second;
    piece.last = std::max(piece.last, node);
  };
  for (std::size_t n = 0; n < program.nodes().size(); ++n) {
    for (const ValueId id : program.nodes()[n].outputs) use(id, n);
    for (const ValueId id : program.nodes()[n].inputs) use(id, n);
  }
  for (const Output& output : program.outputs()) use(output.value, program.nodes().size() - 1);
  std::vector<Piece> pieces;
  for (const auto& [root, piece] : values) pieces.push_back(piece);
  for (std::size_t n = 0; n < program.nodes().size(); ++n) {
    if (plan.workspace_bytes[n] > 0) pieces.push_back({plan.workspace_offset[n], plan.workspace_bytes[n], n, n});
  }
  return pieces;
}

std::size_t most_alive(const std::vector<Piece>& pieces, std::size_t nodes) {
  std::size_t most = 0;
  for (std::size_t n = 0; n < nodes; ++n) {
    std::size_t alive = 0;
    for (const Piece& piece : pieces) {
      if (piece.first <= n && n <= piece.last) alive += align_up(piece.bytes);
    }
    most = std::max(most, alive);
  }
  return most;
}

constexpr std::uint64_t kPrograms = 200;

TEST(MemoryPlan, NothingAliveTogetherOverlaps) {
  for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = random_program(seed);
    const MemoryPlan plan = plan_memory(program, DeviceKind::kCpu);
    const std::vector<Piece> pieces = pieces_of(program, plan);
    for (const Piece& a : pieces) {
      ASSERT_NE(a.offset, kNoOffset) << seed;
      ASSERT_EQ(a.offset % kAlignment, 0u) << seed;
      ASSERT_LE(a.offset + a.bytes, plan.arena) << seed;
      for (const Piece& b : pieces) {
        if (&a == &b || a.last < b.first || b.last < a.first) continue;
        ASSERT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << "program " << seed << ": bytes " << a.offset << "+" << a.bytes << " of nodes " << a.first << ".."
            << a.last << ", " << b.offset << "+" << b.bytes << " of " << b.first << ".." << b.last;
      }
    }
  }
}

// The peak of memory alive at one node is a lower bound of the arena. Packing by size must stay close to it.
TEST(MemoryPlan, ArenaIsCloseToWhatIsAlive) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = random_program(seed);
    const MemoryPlan plan = plan_memory(program, DeviceKind::kCpu);
    const std::size_t alive = most_alive(pieces_of(program, plan), program.nodes().size());
    ASSERT_GE(plan.arena, alive) << seed;
    ASSERT_LE(plan.peak_activations, alive) << seed;
    ASSERT_LE(alive, plan.peak_activations + plan.peak_workspace) << seed;
    const double ratio = static_cast<double>(plan.arena) / static_cast<double>(alive);
    EXPECT_LE(ratio, 1.4) << seed;
    sum += ratio;
  }
  EXPECT_LE(sum / static_cast<double>(kPrograms), 1.05);
}

TEST(MemoryPlan, AliasesOwnNothing) {
  for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = random_program(seed);
    const MemoryPlan plan = plan_memory(program, DeviceKind::kCpu);
    for (std::size_t id = 0; id < program.values().size(); ++id) {
      const Value& value = program.values()[id];
      EXPECT_EQ(plan.value_offset[id] != kNoOffset, value.producer >= 0 && value.alias_of == kNoValue) << seed;
    }
  }
}

TEST(MemoryPlan, AChainInPlaceHasOneBlockToItsEnd) {
  Program program;
  const Tensor in = program.input("in", {DType::kU8, {kInputSize}});
  const Tensor a = mix(program, {&in, 1}, 1000, 0);         // node 0
  const Tensor other = mix(program, {&in, 1}, 500, 0);      // node 1, read until node 3
  const Tensor b = mix_in_place(a, other);                  // node 2
  const Tensor c = mix_in_place(view_as_column(b), other);  // nodes 3 and 4
  const Tensor late = mix(program, {&c, 1}, 1000, 0);       // node 5: last use of the chain's storage
  const Tensor last = mix(program, {&late, 1}, 1000, 0);    // node 6: the storage is free
  program.output("last", last);
  const MemoryPlan plan = plan_memory(program, DeviceKind::kCpu);
  EXPECT_EQ(program.storage_of(c.id()), a.id());
  const auto offset = [&](const Tensor& t) { return plan.value_offset[static_cast<std::size_t>(t.id())]; };
  EXPECT_EQ(offset(b), kNoOffset);
  EXPECT_EQ(offset(c), kNoOffset);
  EXPECT_NE(offset(late), offset(a));
  EXPECT_EQ(offset(last), offset(a));
  EXPECT_EQ(plan.arena, 2 * align_up(1000));
  EXPECT_EQ(plan.inputs, align_up(kInputSize) + align_up(sizeof(std::int64_t)));
}

std::vector<std::uint8_t> run_output(Executable& executable, std::string_view name) {
  for (const Output& output : executable.program().outputs()) {
    if (output.name != name) continue;
    std::vector<std::uint8_t> bytes(executable.program().value(output.value).type.bytes());
    executable.get<std::uint8_t>(name, bytes);
    return bytes;
  }
  return {};
}

// Returns the program with every value as an output, so that no two values may share memory.
Program all_kept(Program program) {
  const std::size_t values = program.values().size();
  for (std::size_t id = 0; id < values; ++id) {
    if (program.values()[id].producer < 0) continue;
    program.output("kept" + std::to_string(id), program.tensor(static_cast<ValueId>(id)));
  }
  return program;
}

TEST(MemoryPlan, SharedBytesGiveTheSameResults) {
  for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
    Executable shared(random_program(seed), std::make_shared<Arena>(cpu_device()), {});
    Executable apart(all_kept(random_program(seed)), std::make_shared<Arena>(cpu_device()), {});
    std::size_t owned = 0;
    for (const Value& value : apart.program().values()) {
      if (value.producer >= 0 && value.alias_of == kNoValue) owned += align_up(value.type.bytes());
    }
    ASSERT_GE(apart.plan().arena, owned) << seed;
    std::array<std::uint8_t, kInputSize> input{};
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::uint8_t>(i * 7 + seed);
    for (Executable* executable : {&shared, &apart}) {
      executable->set<std::uint8_t>("in", input);
      executable->run();
      executable->run();  // a second run: the content left by the first must not matter
    }
    for (const char* name : {"out0", "out1", "out2"}) {
      ASSERT_FALSE(run_output(shared, name).empty());
      ASSERT_EQ(run_output(shared, name), run_output(apart, name)) << seed << " " << name;
    }
  }
}

}  // namespace
}  // namespace hone::test

// FreeList against a std::set that holds the same blocks.
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "free_list.hpp"

namespace et_replay::test {
namespace {

struct BySizeThenOrder {
  bool operator()(const Block* left, const Block* right) const {
    return std::tie(left->size, left->order) < std::tie(right->size, right->order);
  }
};
using Oracle = std::set<Block*, BySizeThenOrder>;

Block block_of(Bytes size, std::uint64_t order) {
  Block block;
  block.size = size;
  block.order = order;
  return block;
}

bool agree(FreeList& list, const Oracle& oracle) {
  std::vector<Block*> listed;
  list.for_each([&](Block* block) { listed.push_back(block); });
  std::vector<Block*> stepped;
  for (auto at = list.best_fit(0); list.at(at) != nullptr; at = list.next(at)) {
    stepped.push_back(list.at(at));
  }
  return listed == stepped && listed == std::vector<Block*>(oracle.begin(), oracle.end());
}

Block* take_fit(FreeList& list, Bytes size) {
  const FreeList::Cursor cursor = list.best_fit(size);
  Block* block = list.at(cursor);
  if (block != nullptr) list.erase(cursor);
  return block;
}

Block* take_fit(Oracle& oracle, Bytes size) {
  Block least = block_of(size, 0);
  const auto found = oracle.lower_bound(&least);
  if (found == oracle.end()) return nullptr;
  Block* block = *found;
  oracle.erase(found);
  return block;
}

void takes_the_smallest_that_fits_and_of_equals_the_first_in_order() {
  Block late = block_of(1024, 9), early = block_of(1024, 3), larger = block_of(2048, 1);
  FreeList list;
  for (Block* block : {&late, &larger, &early}) list.insert(block);
  CHECK(list.largest() == 2048);
  CHECK(take_fit(list, 513) == &early);
  CHECK(take_fit(list, 1024) == &late);
  CHECK(take_fit(list, 1025) == &larger);
  CHECK(take_fit(list, 1) == nullptr);
  CHECK(list.empty());
  CHECK(list.largest() == 0);
}

// Grows to thousands of blocks and shrinks to none, so that chunks are halved and removed.
void agrees_with_a_set_while_it_grows_and_shrinks(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Block> blocks;
  for (std::uint64_t order = 0; order < 3000; ++order) {
    blocks.push_back(block_of(512 * static_cast<Bytes>(1 + random() % 200), order));
  }
  FreeList list;
  Oracle oracle;
  for (int step = 0; step < 30000; ++step) {
    Block* block = &blocks[random() % blocks.size()];
    const bool growing = step < 15000;
    if (oracle.count(block) == 0) {
      if (growing || random() % 3 == 0) {
        list.insert(block);
        oracle.insert(block);
      }
    } else if (random() % 2 == 0) {
      list.erase(block);
      oracle.erase(block);
    } else if (!growing) {
      CHECK(take_fit(list, block->size - 100) == take_fit(oracle, block->size - 100));
    }
    if (step % 500 == 0) CHECK(agree(list, oracle));
  }
  while (!oracle.empty()) CHECK(take_fit(list, 1) == take_fit(oracle, 1));
  CHECK(list.empty());
}

}  // namespace

void run_free_list_tests() {
  takes_the_smallest_that_fits_and_of_equals_the_first_in_order();
  for (unsigned seed : {1u, 2u}) agrees_with_a_set_while_it_grows_and_shrinks(seed);
}

}  // namespace et_replay::test

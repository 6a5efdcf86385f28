// RequestList: which request of the list one that comes is.
#include <vector>

#include "check.hpp"
#include "request_list.hpp"

namespace et_replay::test {
namespace {

constexpr std::int64_t none = -1;

void gives_nothing_before_anything_is_expected() {
  RequestList empty;
  CHECK(empty.size() == 0);
  CHECK(empty.take(512, 0) == none);
  RequestList list({{7, 512, 0}});
  CHECK(list.size() == 1);
  CHECK(list.take(512, 0) == none);
}

void finds_requests_in_whatever_order_they_come() {
  RequestList list({{1, 100, 0}, {2, 200, 0}, {3, 300, 0}});
  list.expect(0, 3);
  CHECK(list.take(300, 0) == 3);
  CHECK(list.take(100, 0) == 1);
  CHECK(list.take(200, 0) == 2);
  CHECK(list.take(200, 0) == none);
}

void gives_the_first_of_a_size_first_and_each_once() {
  RequestList list({{5, 100, 0}, {9, 200, 0}, {4, 100, 0}});
  list.expect(0, 3);
  CHECK(list.take(100, 0) == 5);
  CHECK(list.take(100, 0) == 4);
  CHECK(list.take(100, 0) == none);
  CHECK(list.take(200, 0) == 9);
}

void tells_sizes_to_the_byte_and_streams_apart() {
  RequestList list({{1, 512, 0}, {2, 512, 8}});
  list.expect(0, 2);
  CHECK(list.take(511, 0) == none);
  CHECK(list.take(513, 0) == none);
  CHECK(list.take(512, 9) == none);
  CHECK(list.take(512, 8) == 2);
  CHECK(list.take(512, 8) == none);
  CHECK(list.take(512, 0) == 1);
}

void knows_only_what_is_near() {
  RequestList list({{1, 100, 0}, {2, 100, 0}, {3, 100, 0}, {4, 100, 0}});
  list.expect(1, 3);
  CHECK(list.take(100, 0) == 2);
  CHECK(list.take(100, 0) == 3);
  CHECK(list.take(100, 0) == none);
  list.expect(2, 2);
  CHECK(list.take(100, 0) == none);
}

void knows_nothing_beyond_its_end() {
  RequestList list({{1, 100, 0}, {2, 100, 0}});
  list.expect(1, 50);
  CHECK(list.take(100, 0) == 2);
  CHECK(list.take(100, 0) == none);
  list.expect(2, 3);
  CHECK(list.take(100, 0) == none);
  list.expect(40, 50);
  CHECK(list.take(100, 0) == none);
  list.expect(2, 1);
  CHECK(list.take(100, 0) == none);
}

void forgets_what_came_when_it_is_expected_again() {
  RequestList list({{1, 100, 0}, {2, 100, 0}, {3, 300, 0}});
  list.expect(0, 2);
  CHECK(list.take(100, 0) == 1);
  CHECK(list.take(100, 0) == 2);
  list.expect(2, 3);
  CHECK(list.take(100, 0) == none);
  CHECK(list.take(300, 0) == 3);
  list.expect(0, 2);
  CHECK(list.take(300, 0) == none);
  CHECK(list.take(100, 0) == 1);
  list.expect(0, 2);
  CHECK(list.take(100, 0) == 1);
}

}  // namespace

void run_request_list_tests() {
  gives_nothing_before_anything_is_expected();
  finds_requests_in_whatever_order_they_come();
  gives_the_first_of_a_size_first_and_each_once();
  tells_sizes_to_the_byte_and_streams_apart();
  knows_only_what_is_near();
  knows_nothing_beyond_its_end();
  forgets_what_came_when_it_is_expected_again();
}

}  // namespace et_replay::test

/* mqload: loads a broker over AMQP 1.0 and prints what it measured as one JSON object. */
#include "options.h"
#include "receiver.h"
#include "sender.h"

int main(int argc, char **argv) {
  options_t options = options_parse(argc, argv);
  return options.mode == MODE_SEND ? sender_run(&options) : receiver_run(&options);
}

/* mqload: loads a broker over AMQP 1.0 and prints what it measured as one JSON object. */
#include "many.h"
#include "options.h"
#include "receiver.h"
#include "sender.h"

int main(int argc, char **argv) {
  options_t options = options_parse(argc, argv);
  switch (options.mode) {
    case MODE_SEND: return sender_run(&options);
    case MODE_RECEIVE: return receiver_run(&options);
    case MODE_SCATTER: return scatter_run(&options);
    case MODE_ATTACH: return attach_run(&options);
  }
  return 2;
}

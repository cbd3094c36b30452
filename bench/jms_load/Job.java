import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.policy.JmsDefaultPrefetchPolicy;
import org.json.JSONObject;

/** What one load was asked for, the connections that are open for it, and the messages that it is made of. */
final class Job implements AutoCloseable {
    static final long WAIT_MS = 20_000;
    /** A message too many is as wrong as one too few. */
    static final long QUIET_MS = 200;

    /** Messages were lost, doubled, damaged, in another order, or went to who should not have them. */
    static final class Wrong extends RuntimeException {
        private static final long serialVersionUID = 1L;

        Wrong(String what) {
            super(what);
        }
    }

    /** A change of a message before it is sent. */
    interface Mark {
        void mark(Message message, int number) throws JMSException;
    }

    static final Mark PLAIN = (message, number) -> {};

    final JSONObject asked;
    final String address;
    final int count;
    private final JmsConnectionFactory factory;
    private final byte[] pattern;
    private final List<Connection> connections = new ArrayList<>();

    Job(JSONObject asked) {
        this.asked = asked;
        address = asked.getString("address");
        count = asked.getInt("count");
        pattern = new byte[asked.getInt("size")];
        Arrays.fill(pattern, (byte) 'x');
        factory = new JmsConnectionFactory("amqp://127.0.0.1:" + asked.getInt("port"));
        factory.setUsername(asked.getString("user"));
        factory.setPassword(asked.getString("password"));
        if (asked.has("prefetch")) {
            ((JmsDefaultPrefetchPolicy) factory.getPrefetchPolicy()).setAll(asked.getInt("prefetch"));
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new Wrong(what);
        }
    }

    /** A connection that is started, and closed at the end of the load. */
    Connection connect() throws JMSException {
        Connection connection = factory.createConnection();
        connections.add(connection);
        connection.start();
        return connection;
    }

    Session session() throws JMSException {
        return connect().createSession();
    }

    @Override
    public void close() {
        for (Connection connection : connections) {
            try {
                connection.close();
            } catch (JMSException lost) {
                // What a load asks of it has been answered, or it has failed with a reason of its own.
            }
        }
    }

    /** A message that knows its number. */
    BytesMessage message(Session session, int number) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        byte[] body = pattern.clone();
        ByteBuffer.wrap(body).putLong(number);
        message.writeBytes(body);
        return message;
    }

    /** The number of a message, whose body is as it was sent. */
    int number(Message message) throws JMSException {
        check(message instanceof BytesMessage, "a message came as another type");
        BytesMessage bytes = (BytesMessage) message;
        check(bytes.getBodyLength() == pattern.length, "a message came with " + bytes.getBodyLength() + " bytes");
        byte[] body = new byte[pattern.length];
        bytes.readBytes(body);
        long number = ByteBuffer.wrap(body).getLong();
        boolean whole = Arrays.equals(body, Long.BYTES, body.length, pattern, Long.BYTES, pattern.length);
        check(whole && number >= 0 && number <= Integer.MAX_VALUE, "a message came damaged");
        return (int) number;
    }

    /** Send so many to a queue, and return when the broker has them: the last is answered, and with it all before. */
    void fill(String queue, int messages, Mark mark) throws JMSException {
        try (Session session = session();
                MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            for (int number = 0; number < messages; number++) {
                Message message = message(session, number);
                mark.mark(message, number);
                int mode = number == messages - 1 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
                producer.send(message, mode, message.getJMSPriority(), 0);
            }
        }
    }

    /** The number of the next message; there must be one. */
    int next(MessageConsumer consumer, String which) throws JMSException {
        Message message = consumer.receive(WAIT_MS);
        check(message != null, which + " did not come");
        return number(message);
    }

    /** How many messages a new browser has shown, in their order; it is closed after so many. */
    int browse(Session session, int most) throws JMSException {
        try (QueueBrowser browser = session.createBrowser(session.createQueue(address))) {
            Enumeration<?> messages = browser.getEnumeration();
            int wanted = 0;
            while (wanted < most && messages.hasMoreElements()) {
                int number = number((Message) messages.nextElement());
                check(number == wanted, "message " + number + " was shown, and not " + wanted);
                wanted++;
            }
            return wanted;
        }
    }

    /** All messages are still in their queue, in their order, and nothing else is. */
    void drain(Session session) throws JMSException {
        try (MessageConsumer consumer = session.createConsumer(session.createQueue(address))) {
            for (int wanted = 0; wanted < count; wanted++) {
                check(next(consumer, "message " + wanted) == wanted, "message " + wanted + " is not there");
            }
            nothingMore(consumer);
        }
    }

    static void nothingMore(MessageConsumer consumer) throws JMSException {
        check(consumer.receive(QUIET_MS) == null, "a message too many came");
    }

    static JSONObject figures(int messages, double seconds) {
        return new JSONObject().put("messages", messages).put("seconds", seconds).put("per_second", messages / seconds);
    }

    /** In microseconds, of times in nanoseconds, which it sorts. */
    static JSONObject percentiles(long[] took) {
        Arrays.sort(took);
        JSONObject found = new JSONObject();
        return found.put("p50", at(took, 0.5)).put("p99", at(took, 0.99)).put("p999", at(took, 0.999));
    }

    private static double at(long[] sorted, double share) {
        return sorted[(int) (sorted.length * share)] / 1e3;
    }

    static double secondsSince(long began) {
        return (System.nanoTime() - began) / 1e9;
    }
}

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;
import org.json.JSONArray;
import org.json.JSONObject;

/**
 * A client on Qpid JMS, told what to do in JSON lines: one request a line on stdin, its one answer a line on stdout.
 *
 * <p>Owns connections, sessions, producers, consumers and temporary destinations by the names that the test gave them.
 * Destinations are written {@code queue:NAME}, {@code topic:NAME}, {@code temporary:NAME} for one that was made here, or
 * {@code reply:CONSUMER} for where the consumer's last message wants its answer. Every wait has a deadline.
 */
public final class JmsClient {
    private static final int PATTERN_LENGTH = 251;
    private static final long WAIT_MS = 20_000;
    private static final int INLINE_BYTES_MAX = 4096;

    private final Map<String, Connection> connections = new HashMap<>();
    private final Map<String, List<String>> events = new HashMap<>();
    private final Map<String, Session> sessions = new HashMap<>();
    private final Map<String, MessageProducer> producers = new HashMap<>();
    private final Map<String, MessageConsumer> consumers = new HashMap<>();
    private final Map<String, Session> sessionOf = new HashMap<>();
    private final Map<String, Destination> temporary = new HashMap<>();
    private final Map<String, Message> last = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JmsClient client = new JmsClient();
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(client.answer(new JSONObject(line)));
            answers.flush();
        }
        System.exit(0);
    }

    private JSONObject answer(JSONObject request) {
        try {
            return perform(request.getString("do"), request);
        } catch (Exception fault) {
            Throwable first = fault;
            while (first.getCause() != null) {
                first = first.getCause();
            }
            String text = fault.getClass().getSimpleName() + ": " + fault.getMessage();
            return new JSONObject().put("failed_request", first == fault ? text : text + " / " + first.getMessage());
        }
    }

    private JSONObject perform(String what, JSONObject request) throws Exception {
        switch (what) {
            case "connect" -> connect(request);
            case "session" -> session(request);
            case "producer" -> producer(request);
            case "consumer" -> consumer(request);
            case "acknowledge" -> last.get(request.getString("consumer")).acknowledge();
            case "commit" -> sessions.get(request.getString("session")).commit();
            case "rollback" -> sessions.get(request.getString("session")).rollback();
            case "recover" -> sessions.get(request.getString("session")).recover();
            case "unsubscribe" -> sessions.get(request.getString("session")).unsubscribe(request.getString("name"));
            case "delete" -> delete(temporary.remove(request.getString("name")));
            case "close" -> close(request);
            case "reset" -> reset();
            case "send" -> {
                return send(request);
            }
            case "receive" -> {
                return receive(request);
            }
            case "browse" -> {
                return browse(request);
            }
            case "temporary" -> {
                return makeTemporary(request);
            }
            case "events" -> {
                return new JSONObject().put("events", new JSONArray(events.get(request.getString("name"))));
            }
            default -> throw new IllegalArgumentException("nobody knows how to do " + what);
        }
        return new JSONObject();
    }

    // -- what is owned ------------------------------------------------------------------------------------------------

    private void connect(JSONObject request) throws JMSException {
        String name = request.getString("name");
        // Several brokers are a list with commas, for a connection that fails over.
        String at = request.has("at") ? request.getString("at") : "amqp://127.0.0.1:" + request.getInt("port");
        String options = request.optString("options", "");
        String uri = request.optBoolean("failover") ? "failover:(" + at + ")" : at;
        JmsConnectionFactory factory = new JmsConnectionFactory(options.isEmpty() ? uri : uri + "?" + options);
        Connection connection = factory.createConnection(request.getString("user"), request.getString("password"));
        try {
            if (request.has("client_id")) {
                connection.setClientID(request.getString("client_id"));
            }
            List<String> seen = new CopyOnWriteArrayList<>();
            ((JmsConnection) connection).addConnectionListener(new Seen(seen));
            connection.setExceptionListener(fault -> seen.add("exception: " + fault.getMessage()));
            connection.start();
            events.put(name, seen);
            connections.put(name, connection);
        } catch (JMSException | RuntimeException fault) {
            connection.close();
            throw fault;
        }
    }

    private void session(JSONObject request) throws JMSException {
        int mode = switch (request.optString("mode", "auto")) {
            case "auto" -> Session.AUTO_ACKNOWLEDGE;
            case "client" -> Session.CLIENT_ACKNOWLEDGE;
            case "transacted" -> Session.SESSION_TRANSACTED;
            case "dups-ok" -> Session.DUPS_OK_ACKNOWLEDGE;
            case "individual" -> 101; // Qpid JMS: each message is acknowledged alone
            default -> throw new IllegalArgumentException(request.getString("mode"));
        };
        Connection connection = connections.get(request.getString("connection"));
        sessions.put(request.getString("name"), connection.createSession(mode == Session.SESSION_TRANSACTED, mode));
    }

    private void producer(JSONObject request) throws JMSException {
        Session session = sessions.get(request.getString("session"));
        String name = request.getString("name");
        MessageProducer made = session.createProducer(destination(session, request.optString("destination", "")));
        sessionOf.put(name, session);
        producers.put(name, made);
    }

    private void consumer(JSONObject request) throws JMSException {
        Session session = sessions.get(request.getString("session"));
        Destination from = destination(session, request.getString("destination"));
        String selector = request.optString("selector", null);
        String subscription = request.optString("subscription", null);
        MessageConsumer made = switch (request.optString("kind", "plain")) {
            case "plain" -> session.createConsumer(from, selector, request.optBoolean("no_local"));
            case "durable" -> session.createDurableSubscriber((Topic) from, subscription, selector, request.optBoolean("no_local"));
            case "shared" -> session.createSharedConsumer((Topic) from, subscription, selector);
            case "shared-durable" -> session.createSharedDurableConsumer((Topic) from, subscription, selector);
            default -> throw new IllegalArgumentException(request.getString("kind"));
        };
        consumers.put(request.getString("name"), made);
    }

    private JSONObject makeTemporary(JSONObject request) throws JMSException {
        Session session = sessions.get(request.getString("session"));
        boolean isTopic = request.optBoolean("topic");
        Destination made = isTopic ? session.createTemporaryTopic() : session.createTemporaryQueue();
        temporary.put(request.getString("name"), made);
        return new JSONObject().put("address", isTopic ? ((Topic) made).getTopicName() : ((Queue) made).getQueueName());
    }

    private static void delete(Destination made) throws JMSException {
        if (made instanceof TemporaryQueue queue) {
            queue.delete();
        } else {
            ((TemporaryTopic) made).delete();
        }
    }

    private void close(JSONObject request) throws Exception {
        String name = request.getString("name");
        for (Map<String, ? extends AutoCloseable> owned : List.of(consumers, producers, sessions, connections)) {
            AutoCloseable found = owned.remove(name);
            if (found != null) {
                found.close();
                return;
            }
        }
        throw new IllegalArgumentException("there is nothing of the name " + name);
    }

    private void reset() {
        for (Connection connection : connections.values()) {
            try {
                connection.close();
            } catch (JMSException gone) {
                System.err.println("while closing: " + gone.getMessage());
            }
        }
        for (Map<String, ?> owned : List.of(consumers, producers, sessions, connections, events, temporary, last, sessionOf)) {
            owned.clear();
        }
    }

    private Destination destination(Session session, String written) throws JMSException {
        if (written.isEmpty()) {
            return null; // a producer that says with each message where it goes
        }
        String name = written.substring(written.indexOf(':') + 1);
        return switch (written.substring(0, written.indexOf(':'))) {
            case "queue" -> session.createQueue(name);
            case "topic" -> session.createTopic(name);
            case "temporary" -> temporary.get(name);
            case "reply" -> last.get(name).getJMSReplyTo();
            default -> throw new IllegalArgumentException(written);
        };
    }

    // -- messages out -------------------------------------------------------------------------------------------------

    private JSONObject send(JSONObject request) throws JMSException {
        String name = request.getString("producer");
        MessageProducer producer = producers.get(name);
        Session session = sessionOf.get(name);
        producer.setDeliveryDelay(request.optLong("delay_ms", 0));
        int mode = request.optBoolean("durable", true) ? 2 : 1;
        int priority = request.optInt("priority", Message.DEFAULT_PRIORITY);
        long lifeMs = request.optLong("ttl_ms", 0);
        Destination to = destination(session, request.optString("destination", ""));
        JSONArray rows = request.getJSONArray("messages");
        JSONArray ids = new JSONArray();
        for (int at = 0; at < rows.length(); at++) {
            Message message = made(session, rows.getJSONObject(at));
            if (to == null) {
                producer.send(message, mode, priority, lifeMs);
            } else {
                producer.send(to, message, mode, priority, lifeMs);
            }
            ids.put(message.getJMSMessageID());
        }
        return new JSONObject().put("ids", ids);
    }

    private Message made(Session session, JSONObject row) throws JMSException {
        Message message = switch (row.optString("kind", "text")) {
            case "text" -> session.createTextMessage(row.optString("body", null));
            case "bytes" -> bytes(session, row);
            case "map" -> map(session, row.getJSONObject("body"));
            case "stream" -> stream(session, row.getJSONArray("body"));
            case "object" -> session.createObjectMessage((Serializable) new ArrayList<>(row.getJSONArray("body").toList()));
            case "empty" -> session.createMessage();
            default -> throw new IllegalArgumentException(row.getString("kind"));
        };
        JSONObject properties = row.optJSONObject("properties", new JSONObject());
        for (String key : properties.keySet()) {
            message.setObjectProperty(key, plain(properties.get(key)));
        }
        if (row.has("reply_to")) {
            message.setJMSReplyTo(destination(session, row.getString("reply_to")));
        }
        if (row.has("correlation_id")) {
            message.setJMSCorrelationID(row.getString("correlation_id"));
        }
        if (row.has("type")) {
            message.setJMSType(row.getString("type"));
        }
        return message;
    }

    private static Message bytes(Session session, JSONObject row) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        if (row.has("size")) {
            byte[] body = new byte[row.getInt("size")];
            for (int at = 0; at < body.length; at++) {
                body[at] = (byte) (at % PATTERN_LENGTH);
            }
            message.writeBytes(body);
        } else {
            message.writeBytes(Base64.getDecoder().decode(row.getString("body")));
        }
        return message;
    }

    private static Message map(Session session, JSONObject body) throws JMSException {
        MapMessage message = session.createMapMessage();
        for (String key : body.keySet()) {
            message.setObject(key, plain(body.get(key)));
        }
        return message;
    }

    private static Message stream(Session session, JSONArray body) throws JMSException {
        StreamMessage message = session.createStreamMessage();
        for (Object each : body) {
            message.writeObject(plain(each));
        }
        return message;
    }

    /** JSON's numbers as JMS knows them. */
    private static Object plain(Object value) {
        if (value == JSONObject.NULL) {
            return null;
        }
        return value instanceof BigDecimal number ? (Object) number.doubleValue() : value;
    }

    // -- messages in --------------------------------------------------------------------------------------------------

    /** Up to {@code count}; fewer, if they do not come in time, are not an error: what came, came. */
    private JSONObject receive(JSONObject request) throws Exception {
        String name = request.getString("consumer");
        MessageConsumer consumer = consumers.get(name);
        JSONArray found = new JSONArray();
        long deadlineMs = System.currentTimeMillis() + request.optLong("wait_ms", WAIT_MS);
        while (found.length() < request.optInt("count", 1)) {
            Message message = consumer.receive(Math.max(deadlineMs - System.currentTimeMillis(), 1));
            if (message == null) {
                break;
            }
            last.put(name, message);
            found.put(described(message));
        }
        return new JSONObject().put("messages", found);
    }

    private JSONObject browse(JSONObject request) throws Exception {
        Session session = sessions.get(request.getString("session"));
        Queue queue = (Queue) destination(session, request.getString("destination"));
        JSONArray found = new JSONArray();
        try (QueueBrowser browser = session.createBrowser(queue, request.optString("selector", null))) {
            Enumeration<?> messages = browser.getEnumeration();
            while (messages.hasMoreElements()) {
                found.put(described((Message) messages.nextElement()));
            }
        }
        return new JSONObject().put("messages", found);
    }

    private static JSONObject described(Message message) throws Exception {
        JSONObject row = new JSONObject();
        row.put("class", message.getClass().getSimpleName().replace("Jms", "").replace("Message", "").toLowerCase());
        row.put("id", message.getJMSMessageID());
        row.put("correlation_id", message.getJMSCorrelationID());
        row.put("type", message.getJMSType());
        row.put("durable", message.getJMSDeliveryMode() == 2);
        row.put("priority", message.getJMSPriority());
        row.put("expiration", message.getJMSExpiration());
        row.put("delivery_time", message.getJMSDeliveryTime());
        row.put("timestamp", message.getJMSTimestamp());
        row.put("redelivered", message.getJMSRedelivered());
        row.put("destination", named(message.getJMSDestination()));
        row.put("reply_to", named(message.getJMSReplyTo()));
        JSONObject properties = new JSONObject();
        for (Object key : Collections.list((Enumeration<?>) message.getPropertyNames())) {
            properties.put((String) key, message.getObjectProperty((String) key));
        }
        properties.put("JMSXDeliveryCount", message.getIntProperty("JMSXDeliveryCount"));
        row.put("properties", properties);
        body(message, row);
        return row;
    }

    private static void body(Message message, JSONObject row) throws Exception {
        if (message instanceof TextMessage text) {
            row.put("body", text.getText());
        } else if (message instanceof BytesMessage bytes) {
            byte[] body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            row.put("size", body.length);
            row.put("sha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)));
            row.put("body", body.length > INLINE_BYTES_MAX ? null : Base64.getEncoder().encodeToString(body));
        } else if (message instanceof MapMessage map) {
            JSONObject body = new JSONObject();
            for (Object key : Collections.list((Enumeration<?>) map.getMapNames())) {
                body.put((String) key, wrapped(map.getObject((String) key)));
            }
            row.put("body", body);
        } else if (message instanceof StreamMessage stream) {
            row.put("body", items(stream));
        } else if (message instanceof ObjectMessage object) {
            row.put("body", wrapped(object.getObject()));
        }
    }

    private static JSONArray items(StreamMessage stream) throws JMSException {
        JSONArray found = new JSONArray();
        while (true) {
            try {
                found.put(wrapped(stream.readObject()));
            } catch (jakarta.jms.MessageEOFException end) {
                return found;
            }
        }
    }

    private static Object wrapped(Object value) {
        return value instanceof byte[] bytes ? Base64.getEncoder().encodeToString(bytes) : JSONObject.wrap(value);
    }

    private static String named(Destination destination) throws JMSException {
        if (destination == null) {
            return null;
        }
        String kind = destination instanceof Topic ? "topic" : "queue";
        String name = destination instanceof Topic topic ? topic.getTopicName() : ((Queue) destination).getQueueName();
        return (destination instanceof TemporaryQueue || destination instanceof TemporaryTopic ? "temporary-" : "") + kind + ":" + name;
    }

    /** What happens to a connection without being asked for. */
    private record Seen(List<String> events) implements JmsConnectionListener {
        @Override
        public void onConnectionEstablished(URI remote) {}

        @Override
        public void onConnectionInterrupted(URI remote) {
            events.add("interrupted");
        }

        @Override
        public void onConnectionRestored(URI remote) {
            events.add("restored");
        }

        @Override
        public void onConnectionFailure(Throwable error) {
            events.add("failed");
        }

        @Override
        public void onInboundMessage(JmsInboundMessageDispatch message) {}

        @Override
        public void onSessionClosed(Session session, Throwable cause) {
            events.add("session closed: " + cause.getMessage());
        }

        @Override
        public void onConsumerClosed(MessageConsumer consumer, Throwable cause) {
            events.add("consumer closed: " + cause.getMessage());
        }

        @Override
        public void onProducerClosed(MessageProducer producer, Throwable cause) {
            events.add("producer closed: " + cause.getMessage());
        }
    }
}

import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.json.JSONObject;

/**
 * Producers and consumers at the same time, each with a connection of its own, over a queue or a topic.
 *
 * <p>Producer p of P sends the numbers p, p + P, p + 2P and so on, so each consumer sees the numbers of one producer grow.
 */
final class Stream implements JmsLoad.Load {
    private static final int GROUPS = 100;

    private final Job job;
    private final int producers;
    private final int consumers;
    private final boolean isTopic;
    private final boolean isDurable;
    private final String shared; // "selectors" or "groups": by what consumers of a queue divide messages
    private final String acknowledge; // "auto", "client" or "transaction"
    private final int batch; // messages in an acknowledgement or a transaction
    private final int extra; // messages that nobody expects: the proof that they are noticed
    private final int deliveries;
    private final List<Sender> senders = new ArrayList<>();
    private final List<Receiver> receivers = new ArrayList<>();
    private final AtomicInteger received = new AtomicInteger();
    private final CountDownLatch complete = new CountDownLatch(1);
    private final AtomicReference<Exception> fault = new AtomicReference<>();
    private volatile long ended;

    Stream(Job job) {
        this.job = job;
        producers = job.asked.getInt("producers");
        consumers = job.asked.getInt("consumers");
        isTopic = job.asked.getBoolean("topic");
        isDurable = job.asked.getBoolean("durable");
        shared = job.asked.getString("shared");
        acknowledge = job.asked.getString("acknowledge");
        batch = job.asked.getInt("batch");
        extra = job.asked.optInt("extra");
        deliveries = isTopic ? job.count * consumers : job.count;
    }

    @Override
    public void prepare() throws JMSException {
        for (int place = 0; place < consumers; place++) {
            receivers.add(new Receiver(place));
        }
        for (int place = 0; place < producers; place++) {
            senders.add(new Sender(place));
        }
    }

    @Override
    public JSONObject run() throws Exception {
        long began = System.nanoTime();
        List<Thread> threads = senders.stream().map(Thread::new).toList();
        threads.forEach(Thread::start);
        for (int before = -1; !complete.await(Job.WAIT_MS, TimeUnit.MILLISECONDS); before = received.get()) {
            Job.check(received.get() > before, received + " of " + deliveries + " messages came");
        }
        for (Thread thread : threads) {
            thread.join();
        }
        throwFault();
        double seconds = (ended - began) / 1e9;
        return Job.figures(deliveries, seconds);
    }

    @Override
    public void check() throws Exception {
        Thread.sleep(Job.QUIET_MS);
        throwFault();
        Job.check(received.get() == deliveries, received + " messages came instead of " + deliveries);
        BitSet all = new BitSet();
        BitSet groups = new BitSet();
        for (Receiver receiver : receivers) {
            Job.check(!groups.intersects(receiver.groups), "a group went to two consumers");
            groups.or(receiver.groups);
            if (isTopic) {
                Job.check(receiver.seen.cardinality() == job.count, "a subscriber lacks messages");
            } else {
                Job.check(!all.intersects(receiver.seen), "a message went to two consumers");
                all.or(receiver.seen);
            }
        }
        Job.check(isTopic || all.cardinality() == job.count, "messages are lacking");
    }

    private void throwFault() throws Exception {
        if (fault.get() != null) {
            throw fault.get();
        }
    }

    private void fail(Exception found) {
        fault.compareAndSet(null, found);
        complete.countDown();
    }

    private Session session() throws JMSException {
        int mode =
                switch (acknowledge) {
                    case "client" -> Session.CLIENT_ACKNOWLEDGE;
                    case "transaction" -> Session.SESSION_TRANSACTED;
                    default -> Session.AUTO_ACKNOWLEDGE;
                };
        return job.connect().createSession(mode);
    }

    private Destination destination(Session session) throws JMSException {
        return isTopic ? session.createTopic(job.address) : session.createQueue(job.address);
    }

    private final class Sender implements Runnable {
        private final int place;
        private final Session session = session();
        private final MessageProducer producer = session.createProducer(destination(session));

        Sender(int place) throws JMSException {
            this.place = place;
            producer.setDeliveryMode(isDurable ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        }

        @Override
        public void run() {
            try {
                int sent = 0;
                for (int number = place; number < job.count + extra; number += producers) {
                    Message message = job.message(session, number);
                    mark(message, number);
                    producer.send(message);
                    sent++;
                    if (session.getTransacted() && (sent % batch == 0 || number + producers >= job.count + extra)) {
                        session.commit();
                    }
                }
            } catch (Exception found) {
                fail(found);
            }
        }

        private void mark(Message message, int number) throws JMSException {
            if (shared.equals("selectors")) {
                message.setIntProperty("kind", number % consumers);
            } else if (shared.equals("groups")) {
                message.setStringProperty("JMSXGroupID", "group-" + number % GROUPS);
            }
        }
    }

    private final class Receiver implements MessageListener {
        private final int place;
        private final BitSet seen = new BitSet(job.count);
        private final BitSet groups = new BitSet();
        private final int[] last = new int[producers];
        private final Session session = session();
        private int got;

        Receiver(int place) throws JMSException {
            this.place = place;
            Arrays.fill(last, -1);
            String selector = shared.equals("selectors") ? "kind = " + place : null;
            session.createConsumer(destination(session), selector).setMessageListener(this);
        }

        @Override
        public void onMessage(Message message) {
            try {
                take(job.number(message));
                got++;
                boolean isLast = got == job.count;
                if (!acknowledge.equals("auto") && (got % batch == 0 || isLast)) {
                    settle(message);
                }
                if (received.incrementAndGet() == deliveries) {
                    ended = System.nanoTime();
                    complete.countDown();
                }
            } catch (Exception found) {
                fail(found);
            }
        }

        private void settle(Message message) throws JMSException {
            if (session.getTransacted()) {
                session.commit();
            } else {
                message.acknowledge();
            }
        }

        private void take(int number) {
            Job.check(number < job.count, "a message came that nobody should have sent");
            Job.check(!seen.get(number), "message " + number + " came twice");
            seen.set(number);
            Job.check(number > last[number % producers], "message " + number + " came too late");
            last[number % producers] = number;
            if (shared.equals("selectors")) {
                Job.check(number % consumers == place, "a consumer got what it had not selected");
            } else if (shared.equals("groups")) {
                groups.set(number % GROUPS);
            }
        }
    }
}

import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import org.json.JSONObject;

/** A consumer with a selector finds one in a hundred of the messages that lie in a queue; the others stay there. */
final class Select implements JmsLoad.Load {
    private static final int RARE_EVERY = 100;
    /** Each is looked through once, because the second time a broker may know what it has seen. */
    private static final int QUEUES = 3;

    private final Job job;
    private Session session;

    Select(Job job) {
        this.job = job;
    }

    @Override
    public void prepare() throws JMSException {
        for (int queue = 0; queue < QUEUES; queue++) {
            job.fill(name(queue), job.count, (message, number) -> {
                message.setStringProperty("kind", isRare(number) ? "rare" : "common");
                message.setIntProperty("number", number);
            });
        }
        session = job.session();
    }

    private String name(int queue) {
        return job.address + "." + queue;
    }

    private static boolean isRare(int number) {
        return number % RARE_EVERY == 0;
    }

    @Override
    public JSONObject run() throws JMSException {
        double seconds = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            seconds += select(name(queue));
        }
        return Job.figures(QUEUES * job.count, seconds);
    }

    /** Seconds from the consumer's attach until it has all that it wants. */
    private double select(String queue) throws JMSException {
        long began = System.nanoTime();
        try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue), "kind = 'rare'")) {
            for (int wanted = 0; wanted < job.count; wanted += RARE_EVERY) {
                int number = job.next(consumer, "message " + wanted);
                Job.check(number == wanted, "message " + number + " was found, and not " + wanted);
            }
            return Job.secondsSince(began);
        }
    }

    @Override
    public void check() throws JMSException {
        for (int queue = 0; queue < QUEUES; queue++) {
            try (MessageConsumer consumer = session.createConsumer(session.createQueue(name(queue)))) {
                for (int wanted = 0; wanted < job.count; wanted++) {
                    if (!isRare(wanted)) {
                        int number = job.next(consumer, "message " + wanted);
                        Job.check(number == wanted, "message " + number + " was left, and not " + wanted);
                    }
                }
                Job.nothingMore(consumer);
            }
        }
    }
}

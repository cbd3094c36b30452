import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import org.json.JSONObject;

/** A queue is filled while nobody reads; then one consumer drains it, by priorities where there are some. */
final class Backlog implements JmsLoad.Load {
    private static final int PRIORITIES = 10;

    private final Job job;
    private final boolean hasPriorities;
    private MessageConsumer consumer;

    Backlog(Job job) {
        this.job = job;
        hasPriorities = job.asked.getBoolean("priorities");
    }

    @Override
    public void prepare() {}

    @Override
    public JSONObject run() throws JMSException {
        long began = System.nanoTime();
        job.fill(job.address, job.count, hasPriorities ? Backlog::prioritize : Job.PLAIN);
        double filled = Job.secondsSince(began);
        Session session = job.session();
        began = System.nanoTime();
        consumer = session.createConsumer(session.createQueue(job.address));
        if (hasPriorities) {
            for (int priority = PRIORITIES - 1; priority >= 0; priority--) {
                drain(priority, PRIORITIES);
            }
        } else {
            drain(0, 1);
        }
        double seconds = Job.secondsSince(began);
        return Job.figures(job.count, seconds).put("filled_per_second", job.count / filled);
    }

    private static void prioritize(Message message, int number) throws JMSException {
        message.setJMSPriority(number % PRIORITIES);
    }

    private void drain(int first, int step) throws JMSException {
        for (int wanted = first; wanted < job.count; wanted += step) {
            int number = job.next(consumer, "message " + wanted);
            Job.check(number == wanted, "message " + number + " came, and not " + wanted);
        }
    }

    @Override
    public void check() throws JMSException {
        Job.nothingMore(consumer);
    }
}

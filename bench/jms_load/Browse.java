import jakarta.jms.JMSException;
import jakarta.jms.Session;
import org.json.JSONObject;

/**
 * Browsers go through a queue from its beginning to its end, one after the other, and leave everything there. How fast
 * that is, the client says: it acknowledges each message to its own event loop and waits for that.
 */
final class Browse implements JmsLoad.Load {
    private static final int TIMES = 10;

    private final Job job;
    private Session session;

    Browse(Job job) {
        this.job = job;
    }

    @Override
    public void prepare() throws JMSException {
        job.fill(job.address, job.count, Job.PLAIN);
        session = job.session();
    }

    @Override
    public JSONObject run() throws JMSException {
        long began = System.nanoTime();
        for (int turn = 0; turn < TIMES; turn++) {
            int shown = job.browse(session, Integer.MAX_VALUE);
            Job.check(shown == job.count, shown + " of " + job.count + " messages were shown");
        }
        double seconds = Job.secondsSince(began);
        return Job.figures(TIMES * job.count, seconds);
    }

    @Override
    public void check() throws JMSException {
        job.drain(session);
    }
}

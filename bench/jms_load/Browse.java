import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.Enumeration;
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
            browse();
        }
        double seconds = Job.secondsSince(began);
        return Job.figures(TIMES * job.count, seconds);
    }

    private void browse() throws JMSException {
        try (QueueBrowser browser = session.createBrowser(session.createQueue(job.address))) {
            Enumeration<?> messages = browser.getEnumeration();
            int wanted = 0;
            while (messages.hasMoreElements()) {
                int number = job.number((Message) messages.nextElement());
                Job.check(number == wanted, "message " + number + " was shown, and not " + wanted);
                wanted++;
            }
            Job.check(wanted == job.count, wanted + " of " + job.count + " messages were shown");
        }
    }

    @Override
    public void check() throws JMSException {
        job.drain(session);
    }
}

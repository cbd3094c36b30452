import jakarta.jms.JMSException;
import jakarta.jms.Session;
import org.json.JSONObject;

/** Browsers, one after the other, look at the head of a queue, as a console does: each asks for no more than that. */
final class Look implements JmsLoad.Load {
    private static final int LOOKS = 1_000;
    static final int HEAD = 10;

    private final Job job;
    private Session session;

    Look(Job job) {
        this.job = job;
    }

    @Override
    public void prepare() throws JMSException {
        job.fill(job.address, job.count, Job.PLAIN);
        session = job.session();
        look();
    }

    @Override
    public JSONObject run() throws JMSException {
        long[] took = new long[LOOKS];
        long began = System.nanoTime();
        for (int number = 0; number < LOOKS; number++) {
            took[number] = look();
        }
        double seconds = Job.secondsSince(began);
        return Job.figures(LOOKS * HEAD, seconds).put("round_trip_us", Job.percentiles(took));
    }

    /** From the attach to the detach, in nanoseconds. */
    private long look() throws JMSException {
        long began = System.nanoTime();
        int shown = job.browse(session, HEAD);
        Job.check(shown == HEAD, shown + " of the first " + HEAD + " messages were shown");
        return System.nanoTime() - began;
    }

    @Override
    public void check() throws JMSException {
        job.drain(session);
    }
}

import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import org.json.JSONObject;

/** Requests, one after the other, each of which waits for its answer in a temporary queue. */
final class Request implements JmsLoad.Load {
    private final Job job;
    private Session session;
    private TemporaryQueue mine;
    private MessageProducer producer;
    private MessageConsumer consumer;

    Request(Job job) {
        this.job = job;
    }

    @Override
    public void prepare() throws JMSException {
        Session serving = job.session();
        MessageProducer replies = serving.createProducer(null);
        replies.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        serving.createConsumer(serving.createQueue(job.address))
                .setMessageListener(request -> reply(serving, replies, request));
        session = job.session();
        mine = session.createTemporaryQueue();
        producer = session.createProducer(session.createQueue(job.address));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        consumer = session.createConsumer(mine);
        roundTrip(job.count);
    }

    @Override
    public JSONObject run() throws JMSException {
        long[] took = new long[job.count];
        long began = System.nanoTime();
        for (int number = 0; number < job.count; number++) {
            took[number] = roundTrip(number);
        }
        double seconds = Job.secondsSince(began);
        return Job.figures(job.count, seconds).put("round_trip_us", Job.percentiles(took));
    }

    /** An answer is a message with the request's number; where it does not come, the request waits in vain. */
    private void reply(Session serving, MessageProducer replies, Message request) {
        try {
            Message answer = job.message(serving, job.number(request));
            answer.setJMSCorrelationID(request.getJMSCorrelationID());
            replies.send(request.getJMSReplyTo(), answer);
        } catch (JMSException fault) {
            throw new IllegalStateException(fault);
        }
    }

    private long roundTrip(int number) throws JMSException {
        Message request = job.message(session, number);
        request.setJMSReplyTo(mine);
        request.setJMSCorrelationID("request-" + number);
        long began = System.nanoTime();
        producer.send(request);
        Message answer = consumer.receive(Job.WAIT_MS);
        long took = System.nanoTime() - began;
        Job.check(answer != null, "the answer to request " + number + " did not come");
        boolean isIts = job.number(answer) == number && ("request-" + number).equals(answer.getJMSCorrelationID());
        Job.check(isIts, "request " + number + " got the answer to another");
        return took;
    }

    @Override
    public void check() throws JMSException {
        Job.nothingMore(consumer);
    }
}

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.function.Function;
import org.json.JSONObject;

/**
 * Loads through Qpid JMS: what applications do, and see of a broker.
 *
 * <p>One process serves all brokers of a run, so that none meets a client that is warmer than the next one does. A line
 * on stdin asks for a load, in JSON; a line with {@code ready} says that all is prepared. A line lets it begin, and one
 * with its figures follows. Another line lets it check what is left, and its last line says how many messages there
 * were, each of them once. Whatever is wrong ends the load with {@code failure}, and the next one may follow.
 */
public final class JmsLoad {
    /** What a load does between these lines. */
    interface Load {
        void prepare() throws Exception;

        /** What is measured; its figures. */
        JSONObject run() throws Exception;

        /** Whether every message was there once. */
        void check() throws Exception;
    }

    private static final Map<String, Function<Job, Load>> LOADS =
            Map.of(
                    "stream", Stream::new,
                    "backlog", Backlog::new,
                    "browse", Browse::new,
                    "look", Look::new,
                    "select", Select::new,
                    "request", Request::new);

    private static final BufferedReader ORDERS =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    public static void main(String[] arguments) throws IOException {
        for (String line = ORDERS.readLine(); line != null; line = ORDERS.readLine()) {
            say(served(new JSONObject(line)));
        }
    }

    private static JSONObject served(JSONObject asked) {
        try (Job job = new Job(asked)) {
            Load load = LOADS.get(asked.getString("mode")).apply(job);
            load.prepare();
            System.gc(); // what the load before has left is not this one's
            say(new JSONObject().put("ready", true));
            ORDERS.readLine();
            say(load.run().put("ready", true));
            ORDERS.readLine();
            load.check();
            return new JSONObject().put("ready", true).put("count", job.count);
        } catch (Job.Wrong fault) {
            return new JSONObject().put("failure", fault.getMessage()).put("wrong", true);
        } catch (Exception fault) {
            return new JSONObject().put("failure", fault.toString());
        }
    }

    private static void say(JSONObject answer) {
        System.out.println(answer);
        System.out.flush();
    }
}

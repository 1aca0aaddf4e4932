import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** A run of a topology, exactly once, with the times of its first and its last record on standard output. */
final class Run {
    private static final AtomicLong SEEN = new AtomicLong();
    private static final long RECORDS = Long.parseLong(System.getenv("BENCH_RECORDS"));

    private Run() {
    }

    /** Counts a record of the inputs, whichever it is of. */
    static void seen(Object key, Object value) {
        long number = SEEN.incrementAndGet();
        if (number == 1) {
            mark("first");
        }
        if (number == RECORDS) {
            mark("last");
        }
    }

    static void start(StreamsBuilder builder) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BENCH_BROKER"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("BENCH_GROUP"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getenv("BENCH_STATE_DIR"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, System.getenv("BENCH_COMMIT_MS"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    private static void mark(String what) {
        System.out.printf("%s %.6f%n", what, System.currentTimeMillis() / 1000.0);
    }
}

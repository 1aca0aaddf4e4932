import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Makes a KTable of a table's changes with Kafka Streams, exactly once: a change that is not beyond the row's position is dropped, and
 * a value that the database did not send is taken from the row. Jackson's tree, RocksDB, one thread.
 */
public final class Captured {
    private static final String UNAVAILABLE = "__debezium_unavailable_value";
    private static final String POSITION = "__position";
    private static final ObjectMapper JSON = new ObjectMapper();

    private static byte[] written(JsonNode node) {
        try {
            return node == null ? null : JSON.writeValueAsBytes(node);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static JsonNode read(byte[] data) {
        try {
            return data == null ? null : JSON.readTree(data);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static JsonNode applied(JsonNode change, JsonNode held) {
        long position = change.get("source").get("lsn").asLong();
        if (held != null && held.get(POSITION).asLong() >= position) {
            return held;
        }
        if (change.get("op").asText().equals("d")) {
            return null;
        }
        ObjectNode row = (ObjectNode) change.get("after");
        row.properties().forEach(field -> {
            if (UNAVAILABLE.equals(field.getValue().asText()) && held != null) {
                field.setValue(held.get(field.getKey()));
            }
        });
        return row.put(POSITION, position);
    }

    private static void mark(String what) {
        System.out.printf("%s %.6f%n", what, System.currentTimeMillis() / 1000.0);
    }

    public static void main(String[] args) {
        long records = Long.parseLong(System.getenv("BENCH_RECORDS"));
        Serde<JsonNode> json = Serdes.serdeFrom((topic, node) -> written(node), (topic, data) -> read(data));

        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BENCH_BROKER"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("BENCH_GROUP"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getenv("BENCH_STATE_DIR"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, System.getenv("BENCH_COMMIT_MS"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

        AtomicLong seen = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(System.getenv("BENCH_TOPIC"), Consumed.with(Serdes.String(), json))
            .peek((key, change) -> {
                long number = seen.incrementAndGet();
                if (number == 1) {
                    mark("first");
                }
                if (number == records) {
                    mark("last");
                }
            })
            .groupByKey(Grouped.with(Serdes.String(), json))
            .aggregate(() -> (JsonNode) null, (key, change, row) -> applied(change, row),
                Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as("rows")
                    .withKeySerde(Serdes.String()).withValueSerde(json));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
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

    public static void main(String[] args) {
        Serde<JsonNode> json = Serdes.serdeFrom((topic, node) -> written(node), (topic, data) -> read(data));

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(System.getenv("BENCH_TOPIC"), Consumed.with(Serdes.String(), json))
            .peek(Run::seen)
            .groupByKey(Grouped.with(Serdes.String(), json))
            .aggregate(() -> (JsonNode) null, (key, change, row) -> applied(change, row),
                Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as("rows")
                    .withKeySerde(Serdes.String()).withValueSerde(json));

        Run.start(builder);
    }
}

import java.io.File;
import java.io.IOException;
import java.time.Duration;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Windows, a repartition and joins of clicks with Kafka Streams, exactly once: Avro generic records, RocksDB, one thread. */
public final class Flows {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration GRACE = Duration.ofSeconds(10);
    private static final Duration WITHIN = Duration.ofMinutes(5);
    private static final int GROUP_LENGTH = "user-123".length();

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Serde<GenericRecord> serde;

    private Flows(Schema click) {
        serde = Nexmark.avro(click);
    }

    private KStream<String, GenericRecord> clicks(String variable) {
        return builder.stream(System.getenv(variable), Consumed.with(Serdes.String(), serde)).peek(Run::seen);
    }

    private KStream<String, GenericRecord> left() {
        return clicks("BENCH_TOPIC");
    }

    private KTable<String, GenericRecord> table(String name, String variable) {
        return clicks(variable).toTable(Materialized.<String, GenericRecord, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(Serdes.String()).withValueSerde(serde));
    }

    private void windowCount() {
        left().groupByKey(Grouped.with(Serdes.String(), serde))
            .windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
    }

    private void sessionCount() {
        left().groupByKey(Grouped.with(Serdes.String(), serde))
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(MINUTE, GRACE))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
    }

    private void repartitionCount() {
        left().groupBy((user, click) -> click.get("user_id").toString(), Grouped.with("by-user", Serdes.String(), serde))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
    }

    private KStream<String, String> streamJoin() {
        return left().join(clicks("BENCH_SECOND"), Flows::rightId,
            JoinWindows.ofTimeDifferenceAndGrace(WITHIN, WITHIN), StreamJoined.with(Serdes.String(), serde, serde));
    }

    private KStream<String, String> tableJoin() {
        return table("left", "BENCH_TOPIC").join(table("right", "BENCH_SECOND"), Flows::rightId).toStream();
    }

    private KStream<String, String> foreignKeyJoin() {
        return table("left", "BENCH_TOPIC").join(table("right", "BENCH_SECOND"), click -> {
            String user = click.get("user_id").toString();
            return user.substring(0, Math.min(GROUP_LENGTH, user.length()));
        }, Flows::rightId, TableJoined.as("named")).toStream();
    }

    private static String rightId(GenericRecord left, GenericRecord right) {
        return right.get("id").toString();
    }

    private static void write(KStream<String, String> joined) {
        joined.to(System.getenv("BENCH_GROUP") + "-out", Produced.with(Serdes.String(), Serdes.String()));
    }

    public static void main(String[] args) throws IOException {
        Flows flows = new Flows(new Schema.Parser().parse(new File(System.getenv("BENCH_SCHEMA"))));
        switch (System.getenv("BENCH_HANDLER")) {
            case "window_count" -> flows.windowCount();
            case "session_count" -> flows.sessionCount();
            case "repartition_count" -> flows.repartitionCount();
            case "stream_join" -> write(flows.streamJoin());
            case "table_join" -> write(flows.tableJoin());
            case "foreign_key_join" -> write(flows.foreignKeyJoin());
            default -> throw new IllegalArgumentException("there is no such flow");
        }
        Run.start(flows.builder);
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs the programs of its standard input, one per line, in Kafka Streams, and prints what each has written.
 *
 * <p>A program is a JSON object: a source, steps, inputs. See programs.py, which says what each step and function is. The
 * answer is a list with one list for each input: the records [key, value, timestamp] that it has led to.
 */
public class Programs {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PRIME = 1_000_003;
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(new Programs().run(JSON.readTree(line))));
        }
        out.flush();
    }

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<String, KStream<String, Long>> streams = new HashMap<>();
    private int names = 0;

    private ArrayNode run(JsonNode program) {
        build(program);
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "programs");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:1");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.LongSerde.class);
        // What nothing has matched comes out as soon as its time is over, not at most once a second.
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        ArrayNode answers = JSON.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings, Instant.EPOCH)) {
            Map<String, TestInputTopic<String, Long>> topics = new HashMap<>();
            TestOutputTopic<byte[], Long> output =
                    driver.createOutputTopic("out", Serdes.ByteArray().deserializer(), LONG.deserializer());
            for (JsonNode input : program.get("inputs")) {
                String topic = input.get(0).asText();
                Long value = input.get(2).isNull() ? null : (Long) input.get(2).asLong();
                topics.computeIfAbsent(topic, name -> driver.createInputTopic(name, TEXT.serializer(), LONG.serializer()))
                        .pipeInput(input.get(1).asText(), value, input.get(3).asLong());
                ArrayNode step = answers.addArray();
                for (TestRecord<byte[], Long> record : output.readRecordsToList()) {
                    step.addArray().add(JSON.valueToTree(hex(record.key()))).add(record.value()).add(record.timestamp());
                }
            }
        }
        return answers;
    }

    /** The bytes of a key: both sides write the same, windows included. */
    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte each : data) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    // ---- steps ------------------------------------------------------------------------------------------------------

    private void build(JsonNode program) {
        Object made;
        if (program.get("kind").asText().equals("join")) {
            joined(program.get("join")).to("out", Produced.with(TEXT, LONG));
            return;
        }
        if (program.get("kind").asText().equals("table")) {
            made = builder.table("a", Consumed.with(TEXT, LONG));
        } else {
            made = stream("a");
        }
        made = follow(made, program.get("steps"));
        if (made instanceof KTable) {
            made = ((KTable<?, ?>) made).toStream();
        }
        if (made instanceof Ended) {
            Ended ended = (Ended) made;
            ended.stream.to("out", Produced.with(ended.key, LONG));
        } else {
            strings(made).to("out", Produced.with(TEXT, LONG));
        }
    }

    /** A stream with windowed keys, and how they are written. */
    private record Ended(KStream<Windowed<String>, Long> stream, Serde<Windowed<String>> key) {}

    private KStream<String, Long> stream(String topic) {
        return streams.computeIfAbsent(topic, name -> builder.stream(name, Consumed.with(TEXT, LONG)));
    }

    @SuppressWarnings("unchecked")
    private static KStream<String, Long> strings(Object made) {
        return (KStream<String, Long>) made;
    }

    @SuppressWarnings("unchecked")
    private static KTable<String, Long> table(Object made) {
        return (KTable<String, Long>) made;
    }

    private Object follow(Object made, JsonNode steps) {
        for (JsonNode step : steps) {
            if (made instanceof Ended) {
                made = behindWindows((Ended) made, step);
            } else if (made instanceof KTable) {
                made = ofTable(table(made), step);
            } else {
                made = ofStream(strings(made), step);
            }
        }
        return made;
    }

    private Object ofStream(KStream<String, Long> stream, JsonNode step) {
        switch (step.get("op").asText()) {
            case "filter":
                return stream.filter((key, value) -> test(step.get("by"), value));
            case "map_values":
                return stream.mapValues(value -> change(step.get("by"), value));
            case "flat_map_values":
                return stream.flatMapValues(value -> copies(step.get("by"), value));
            case "map":
                return stream.map((key, value) -> KeyValue.pair(key(step.get("key"), value), change(step.get("by"), value)));
            case "key_by":
                return stream.<String>selectKey((key, value) -> key(step.get("by"), value)).repartition(through());
            case "repartition":
                return stream.repartition(through());
            case "merge":
                return stream.merge(strings(follow(stream(step.get("with").asText()), step.get("steps"))));
            case "split":
                int number = names++;
                Map<String, KStream<String, Long>> parts = stream.split(org.apache.kafka.streams.kstream.Named.as("s" + number + "-"))
                        .branch((key, value) -> test(step.get("by"), value), Branched.as("then"))
                        .defaultBranch(Branched.as("else"));
                KStream<String, Long> one = strings(follow(parts.get("s" + number + "-then"), step.get("then")));
                return one.merge(strings(follow(parts.get("s" + number + "-else"), step.get("else"))));
            case "to_table":
                return stream.toTable(Materialized.with(TEXT, LONG));
            case "window":
                return windowed(stream.groupByKey(Grouped.with(TEXT, LONG)), step);
            default:
                return aggregated(stream.groupByKey(Grouped.with(TEXT, LONG)), step);
        }
    }

    private Object ofTable(KTable<String, Long> table, JsonNode step) {
        switch (step.get("op").asText()) {
            case "filter":
                return table.filter((key, value) -> test(step.get("by"), value));
            case "map_values":
                return table.mapValues(value -> change(step.get("by"), value));
            case "to_stream":
                return table.toStream();
            case "group_by":
                return ofGroups(
                        table.groupBy((key, value) -> KeyValue.pair(key(step.get("by"), value), value), Grouped.with(TEXT, LONG)),
                        step.get("into"));
            default:
                throw new IllegalArgumentException(step.toString());
        }
    }

    private Object behindWindows(Ended windows, JsonNode step) {
        KStream<Windowed<String>, Long> stream = windows.stream;
        switch (step.get("op").asText()) {
            case "filter":
                return new Ended(stream.filter((key, value) -> test(step.get("by"), value)), windows.key);
            case "map_values":
                return new Ended(stream.mapValues(value -> change(step.get("by"), value)), windows.key);
            case "key_by":
                return stream.<String>selectKey((key, value) -> key(step.get("by"), value)).repartition(through());
            default:
                throw new IllegalArgumentException(step.toString());
        }
    }

    private Repartitioned<String, Long> through() {
        return Repartitioned.<String, Long>as("through-" + names++).withKeySerde(TEXT).withValueSerde(LONG);
    }

    // ---- aggregates -------------------------------------------------------------------------------------------------

    private static KTable<String, Long> aggregated(KGroupedStream<String, Long> grouped, JsonNode step) {
        if (step.get("op").asText().equals("count")) {
            return grouped.count(Materialized.with(TEXT, LONG));
        }
        if (step.get("op").asText().equals("reduce")) {
            return grouped.reduce(reducer(step), Materialized.with(TEXT, LONG));
        }
        long initial = step.path("initial").asLong();
        return grouped.aggregate(() -> initial(step, initial), aggregator(step), Materialized.with(TEXT, LONG));
    }

    private static KTable<String, Long> ofGroups(KGroupedTable<String, Long> grouped, JsonNode step) {
        long initial = step.path("initial").asLong();
        switch (step.get("op").asText()) {
            case "count":
                return grouped.count(Materialized.with(TEXT, LONG));
            case "sum":
                return grouped.aggregate(
                        () -> 0L, (key, value, row) -> row + value, (key, value, row) -> row - value, Materialized.with(TEXT, LONG));
            default:
                // What is added weighs more than what is taken away, so that both are seen in the result.
                return grouped.aggregate(
                        () -> initial,
                        (key, value, row) -> row + 10_000 + value,
                        (key, value, row) -> row + 1 - value,
                        Materialized.with(TEXT, LONG));
        }
    }

    private static Object windowed(KGroupedStream<String, Long> grouped, JsonNode step) {
        Duration grace = Duration.ofMillis(step.get("grace").asLong());
        JsonNode into = step.get("into");
        String operator = into.get("op").asText();
        long initial = into.path("initial").asLong();
        KTable<Windowed<String>, Long> table;
        Serde<Windowed<String>> serde;
        if (step.get("kind").asText().equals("session")) {
            serde = WindowedSerdes.sessionWindowedSerdeFrom(String.class);
            SessionWindowedKStream<String, Long> windows = grouped.windowedBy(
                    SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(step.get("gap").asLong()), grace));
            if (operator.equals("count")) {
                table = windows.count(Materialized.with(TEXT, LONG));
            } else if (operator.equals("reduce")) {
                table = windows.reduce(reducer(into), Materialized.with(TEXT, LONG));
            } else {
                table = windows.aggregate(
                        () -> initial(into, initial), aggregator(into), (key, one, two) -> merged(into, one, two), Materialized.with(TEXT, LONG));
            }
        } else {
            TimeWindowedKStream<String, Long> windows;
            long size = step.get("size").asLong();
            serde = WindowedSerdes.timeWindowedSerdeFrom(String.class, size);
            if (step.get("kind").asText().equals("sliding")) {
                windows = grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(size), grace));
            } else {
                TimeWindows kind = TimeWindows.ofSizeAndGrace(Duration.ofMillis(size), grace);
                windows = grouped.windowedBy(
                        step.has("every") ? kind.advanceBy(Duration.ofMillis(step.get("every").asLong())) : kind);
            }
            if (operator.equals("count")) {
                table = windows.count(Materialized.with(TEXT, LONG));
            } else if (operator.equals("reduce")) {
                table = windows.reduce(reducer(into), Materialized.with(TEXT, LONG));
            } else {
                table = windows.aggregate(() -> initial(into, initial), aggregator(into), Materialized.with(TEXT, LONG));
            }
        }
        if (step.get("emit").asText().equals("final")) {
            table = table.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()));
        }
        return new Ended(table.toStream(), serde);
    }

    // ---- joins ------------------------------------------------------------------------------------------------------

    private KStream<String, Long> joined(JsonNode join) {
        String operator = join.get("op").asText();
        ValueJoiner<Long, Long, Long> joiner = (one, other) -> (one == null ? 900 : one) * 1_000 + (other == null ? 900 : other);
        switch (join.get("of").asText()) {
            case "streams":
                Duration before = Duration.ofMillis(join.get("before").asLong());
                Duration after = Duration.ofMillis(join.get("after").asLong());
                JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(
                        before.compareTo(after) > 0 ? before : after, Duration.ofMillis(join.get("grace").asLong()))
                        .before(before).after(after);
                StreamJoined<String, Long, Long> with = StreamJoined.with(TEXT, LONG, LONG);
                switch (operator) {
                    case "join":
                        return stream("a").join(stream("b"), joiner, windows, with);
                    case "left_join":
                        return stream("a").leftJoin(stream("b"), joiner, windows, with);
                    default:
                        return stream("a").outerJoin(stream("b"), joiner, windows, with);
                }
            case "stream_table":
                KTable<String, Long> now = builder.table("b", Consumed.with(TEXT, LONG));
                return operator.equals("join") ? stream("a").join(now, joiner) : stream("a").leftJoin(now, joiner);
            case "as_of":
                KTable<String, Long> versions = builder.table("b", Consumed.with(TEXT, LONG),
                        Materialized.<String, Long>as(Stores.persistentVersionedKeyValueStore("versions", Duration.ofMillis(100_000)))
                                .withKeySerde(TEXT).withValueSerde(LONG));
                return operator.equals("join") ? stream("a").join(versions, joiner) : stream("a").leftJoin(versions, joiner);
            case "foreign_key":
                KTable<String, Long> left = builder.table("a", Consumed.with(TEXT, LONG));
                KTable<String, Long> right = builder.table("b", Consumed.with(TEXT, LONG));
                Function<Long, String> key = value -> "wxyz".substring((int) (value % 4), (int) (value % 4) + 1);
                Materialized<String, Long, KeyValueStore<Bytes, byte[]>> kept = Materialized.with(TEXT, LONG);
                return (operator.equals("join") ? left.join(right, key, joiner, kept) : left.leftJoin(right, key, joiner, kept)).toStream();
            default:
                KTable<String, Long> one = builder.table("a", Consumed.with(TEXT, LONG));
                KTable<String, Long> other = builder.table("b", Consumed.with(TEXT, LONG));
                switch (operator) {
                    case "join":
                        return one.join(other, joiner).toStream();
                    case "left_join":
                        return one.leftJoin(other, joiner).toStream();
                    default:
                        return one.outerJoin(other, joiner).toStream();
                }
        }
    }

    // ---- functions --------------------------------------------------------------------------------------------------

    private static boolean test(JsonNode by, Long value) {
        if (value == null) {
            return by.path("none").asBoolean();
        }
        long n = by.get("n").asLong();
        return by.get("fn").asText().equals("below") ? value < n : Math.floorMod(value, n) != by.get("r").asLong();
    }

    private static Long change(JsonNode by, Long value) {
        if (value == null) {
            return null;
        }
        long n = by.get("n").asLong();
        switch (by.get("fn").asText()) {
            case "add":
                return value + n;
            case "times":
                return Math.floorMod(value * n, PRIME);
            default:
                return Math.floorMod(value, n) == by.get("r").asLong() ? null : value;
        }
    }

    private static List<Long> copies(JsonNode by, Long value) {
        List<Long> made = new ArrayList<>();
        for (long each = 0; value != null && each < Math.floorMod(value, by.get("n").asLong()); each++) {
            made.add(value + each);
        }
        return made;
    }

    private static String key(JsonNode by, Long value) {
        return value == null ? "none" : by.get("p").asText() + Math.floorMod(value, by.get("n").asLong());
    }

    private static Long combined(JsonNode step, Long row, Long value) {
        switch (step.get("fn").asText()) {
            case "last":
                return value;
            case "sum":
                return row + value;
            case "min":
                return Math.min(row, value);
            case "max":
                return Math.max(row, value);
            default:
                long made = Math.floorMod(row * 31 + value, PRIME);
                return step.get("fn").asText().equals("hash_drop") && made % 3 == 0 ? null : made;
        }
    }

    private static Long merged(JsonNode step, Long one, Long two) {
        if (one == null) {
            return two;
        }
        return step.get("op").asText().equals("aggregate") ? (Long) (long) Math.floorMod(one * 7 + two, PRIME) : combined(step, one, two);
    }

    /** A sum, least or greatest begins with its first value, which an aggregate without a row shows. */
    private static Long initial(JsonNode step, long initial) {
        return step.get("op").asText().equals("aggregate") && step.has("initial") ? (Long) initial : null;
    }

    private static Reducer<Long> reducer(JsonNode step) {
        return (row, value) -> combined(step, row, value);
    }

    private static Aggregator<String, Long, Long> aggregator(JsonNode step) {
        return (key, value, row) -> row == null ? value : combined(step, row, value);
    }
}

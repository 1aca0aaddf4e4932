import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;

/** Queries 1, 3, 5 and 8 of Nexmark with Kafka Streams, exactly once: Avro generic records, RocksDB, one thread. */
public final class Nexmark {
    private static final long WINDOW_MS = 10_000;
    private static final long PERIOD_MS = 5_000;
    private static final long CATEGORY = 10;
    private static final Set<String> STATES = Set.of("OR", "ID", "CA");

    /** Avro with the single-object head: C3 01 and the schema's fingerprint, little-endian. */
    static <T> Serde<T> avro(Schema schema) {
        GenericDatumReader<T> reader = new GenericDatumReader<>(schema);
        GenericDatumWriter<T> writer = new GenericDatumWriter<>(schema);
        byte[] head = ByteBuffer.allocate(10).order(ByteOrder.LITTLE_ENDIAN).put((byte) 0xC3).put((byte) 1)
            .putLong(SchemaNormalization.parsingFingerprint64(schema)).array();
        BinaryDecoder[] decoder = new BinaryDecoder[1];
        BinaryEncoder[] encoder = new BinaryEncoder[1];
        return Serdes.serdeFrom((topic, value) -> {
            if (value == null) {
                return null;
            }
            try {
                ByteArrayOutputStream out = new ByteArrayOutputStream(128);
                out.write(head);
                encoder[0] = EncoderFactory.get().directBinaryEncoder(out, encoder[0]);
                writer.write(value, encoder[0]);
                return out.toByteArray();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }, (topic, data) -> {
            if (data == null) {
                return null;
            }
            try {
                decoder[0] = DecoderFactory.get().binaryDecoder(data, 10, data.length - 10, decoder[0]);
                return reader.read(null, decoder[0]);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
    }

    private static Schema read(String name) throws IOException {
        return new Schema.Parser().parse(new File(System.getenv("BENCH_SCHEMA"), name + ".avsc"));
    }

    private static KStream<Long, GenericRecord> events(StreamsBuilder builder, String kind, Schema schema) {
        String topic = System.getenv("BENCH_TOPIC") + "-" + kind;
        Serde<GenericRecord> serde = avro(schema);
        return builder.stream(topic, Consumed.with(Serdes.Long(), serde).withTimestampExtractor(
            (record, before) -> (long) ((GenericRecord) record.value()).get("at")))
            .peek(Run::seen);
    }

    /** A record of a schema with these values, in the order of its fields. */
    private static GenericRecord record(Schema schema, Object... values) {
        GenericRecord made = new GenericData.Record(schema);
        for (int i = 0; i < values.length; i++) {
            made.put(i, values[i]);
        }
        return made;
    }

    private static void currency(StreamsBuilder builder, String out) throws IOException {
        Schema bid = read("bid");
        events(builder, "bids", bid).mapValues(each -> {
            each.put("price", (long) each.get("price") * 89 / 100);
            return each;
        }).to(out, Produced.with(Serdes.Long(), avro(bid)));
    }

    private static void localItems(StreamsBuilder builder, String out) throws IOException {
        Schema seller = SchemaBuilder.record("Seller").fields().requiredLong("seller").endRecord();
        Schema place = SchemaBuilder.record("Place").fields().requiredString("name").requiredString("city")
            .requiredString("state").endRecord();
        Schema suggestion = SchemaBuilder.record("Suggestion").fields().requiredString("name").requiredString("city")
            .requiredString("state").requiredLong("auction").endRecord();
        KTable<Long, GenericRecord> sales = events(builder, "auctions", read("auction"))
            .filter((key, each) -> (long) each.get("category") == CATEGORY)
            .mapValues(each -> record(seller, each.get("seller")))
            .toTable(Materialized.<Long, GenericRecord, KeyValueStore<Bytes, byte[]>>as("sales")
                .withKeySerde(Serdes.Long()).withValueSerde(avro(seller)));
        KTable<Long, GenericRecord> sellers = events(builder, "persons", read("person"))
            .filter((key, each) -> STATES.contains(each.get("state").toString()))
            .mapValues(each -> record(place, each.get("name"), each.get("city"), each.get("state")))
            .toTable(Materialized.<Long, GenericRecord, KeyValueStore<Bytes, byte[]>>as("sellers")
                .withKeySerde(Serdes.Long()).withValueSerde(avro(place)));
        sales.join(sellers, sale -> (Long) sale.get("seller"), (sale, who) -> who,
                Materialized.<Long, GenericRecord, KeyValueStore<Bytes, byte[]>>as("suggested")
                    .withKeySerde(Serdes.Long()).withValueSerde(avro(place)))
            .toStream()
            .mapValues((key, who) -> who == null ? null
                : record(suggestion, who.get("name"), who.get("city"), who.get("state"), key))
            .to(out, Produced.with(Serdes.Long(), avro(suggestion)));
    }

    private static void hotItems(StreamsBuilder builder, String out) throws IOException {
        Schema hot = SchemaBuilder.record("Hot").fields().requiredLong("auction").requiredLong("bids").endRecord();
        Schema hottest = Schema.createArray(hot);
        Schema bid = read("bid");
        events(builder, "bids", bid)
            .groupByKey(Grouped.with(Serdes.Long(), avro(bid)))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(WINDOW_MS), Duration.ZERO)
                .advanceBy(Duration.ofMillis(PERIOD_MS)))
            .count(Materialized.with(Serdes.Long(), Serdes.Long()))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream()
            .map((window, count) -> KeyValue.pair(window.window().end(), record(hot, window.key(), count)))
            .repartition(Repartitioned.with(Serdes.Long(), Nexmark.<GenericRecord>avro(hot)).withName("by-window"))
            .groupByKey(Grouped.with(Serdes.Long(), avro(hot)))
            .<List<GenericRecord>>aggregate(ArrayList::new, (end, each, most) -> {
                long bids = (long) each.get("bids");
                long before = most.isEmpty() ? 0 : (long) most.get(0).get("bids");
                if (bids < before) {
                    return most;
                }
                List<GenericRecord> now = bids > before ? new ArrayList<>() : new ArrayList<>(most);
                now.add(each);
                return now;
            }, Materialized.with(Serdes.Long(), avro(hottest)))
            .toStream()
            .to(out, Produced.with(Serdes.Long(), avro(hottest)));
    }

    private static void newSellers(StreamsBuilder builder, String out) throws IOException {
        Schema fresh = SchemaBuilder.record("New").fields().requiredString("name").requiredLong("at").endRecord();
        Schema reserve = SchemaBuilder.record("Reserve").fields().requiredLong("reserve").requiredLong("at").endRecord();
        Schema found = SchemaBuilder.record("NewSeller").fields().requiredString("name").requiredLong("reserve").endRecord();
        KStream<Long, GenericRecord> persons = events(builder, "persons", read("person"))
            .mapValues(each -> record(fresh, each.get("name"), each.get("at")));
        KStream<Long, GenericRecord> auctions = events(builder, "auctions", read("auction"))
            .map((key, each) -> KeyValue.pair((Long) each.get("seller"), record(reserve, each.get("reserve"), each.get("at"))))
            .repartition(Repartitioned.with(Serdes.Long(), Nexmark.<GenericRecord>avro(reserve)).withName("by-seller"));
        // The records of several producers lie in one partition in any order: with a grace, none of them is dropped.
        persons.join(auctions, (who, sale) -> (long) who.get("at") / WINDOW_MS == (long) sale.get("at") / WINDOW_MS
                    ? record(found, who.get("name"), sale.get("reserve")) : null,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(WINDOW_MS - 1), Duration.ofMinutes(30)),
                StreamJoined.with(Serdes.Long(), avro(fresh), avro(reserve)))
            .filter((key, value) -> value != null)
            .to(out, Produced.with(Serdes.Long(), avro(found)));
    }

    public static void main(String[] args) throws IOException {
        StreamsBuilder builder = new StreamsBuilder();
        String out = System.getenv("BENCH_GROUP") + "-out";
        switch (System.getenv("BENCH_HANDLER")) {
            case "1" -> currency(builder, out);
            case "3" -> localItems(builder, out);
            case "5" -> hotItems(builder, out);
            case "8" -> newSellers(builder, out);
            default -> throw new IllegalArgumentException("there is no such query");
        }
        Run.start(builder);
    }
}

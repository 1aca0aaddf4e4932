// Counts clicks with Goka, at least once (it has no more): a count per user in the group table, in LevelDB.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/hamba/avro/v2"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"
	"github.com/lovoo/goka/storage"
)

// head is how many bytes stand before the Avro body: C3 01 and the schema's fingerprint.
const head = 10

type click struct {
	ID     string `avro:"id"`
	UserID string `avro:"user_id"`
	URL    string `avro:"url"`
	At     int64  `avro:"at"`
}

type clickCodec struct{ schema avro.Schema }

func (c clickCodec) Encode(value any) ([]byte, error) {
	return nil, errors.New("clicks are only read")
}

func (c clickCodec) Decode(data []byte) (any, error) {
	value := new(click)
	return value, avro.Unmarshal(c.schema, data[head:], value)
}

func mark(what string) { fmt.Printf("%s %.6f\n", what, float64(time.Now().UnixMicro())/1e6) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	records, err := strconv.ParseInt(os.Getenv("BENCH_RECORDS"), 10, 64)
	check(err)
	commit, err := strconv.Atoi(os.Getenv("BENCH_COMMIT_MS"))
	check(err)
	schema, err := avro.ParseFiles(os.Getenv("BENCH_SCHEMA"))
	check(err)

	settings := goka.DefaultConfig()
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest // Goka's own default is newest.
	settings.Consumer.Offsets.AutoCommit.Interval = time.Duration(commit) * time.Millisecond
	goka.ReplaceGlobalConfig(settings)
	topics := goka.NewTopicManagerConfig()
	topics.Table.Replication = 1

	var seen atomic.Int64
	count := func(ctx goka.Context, message any) {
		number := seen.Add(1)
		if number == 1 {
			mark("first")
		}
		_ = message.(*click)
		clicks, _ := ctx.Value().(int64)
		ctx.SetValue(clicks + 1)
		if number == records {
			mark("last")
		}
	}
	group := goka.DefineGroup(goka.Group(os.Getenv("BENCH_GROUP")),
		goka.Input(goka.Stream(os.Getenv("BENCH_TOPIC")), clickCodec{schema}, count),
		goka.Persist(new(codec.Int64)))
	processor, err := goka.NewProcessor([]string{os.Getenv("BENCH_BROKER")}, group,
		goka.WithStorageBuilder(storage.DefaultBuilder(os.Getenv("BENCH_STATE_DIR"))),
		goka.WithTopicManagerBuilder(goka.TopicManagerBuilderWithConfig(settings, topics)))
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := processor.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

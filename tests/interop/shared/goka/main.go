// Shares topics with another library: a Goka processor that counts, joins and emits, and a view of the joined table.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"
	"github.com/lovoo/goka/storage"
)

// murmur2 partitions keys as Kafka's Java producer does, which Goka has no hasher for.
type murmur2 struct{ key []byte }

func (m *murmur2) Write(data []byte) (int, error) {
	m.key = append(m.key, data...)
	return len(data), nil
}

func (m *murmur2) Sum32() uint32 {
	const prime = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(m.key))
	rest := m.key
	for ; len(rest) >= 4; rest = rest[4:] {
		k := binary.LittleEndian.Uint32(rest) * prime
		h = h*prime ^ (k^k>>24)*prime
	}
	if len(rest) > 0 {
		var last [4]byte
		copy(last[:], rest)
		h = (h ^ binary.LittleEndian.Uint32(last[:])) * prime
	}
	h = (h ^ h>>13) * prime
	return (h ^ h>>15) & 0x7fffffff // without the sign: Sarama would make a negative number positive in another way
}

func (m *murmur2) Sum(before []byte) []byte { return binary.BigEndian.AppendUint32(before, m.Sum32()) }
func (m *murmur2) Reset()                   { m.key = m.key[:0] }
func (m *murmur2) Size() int                { return 4 }
func (m *murmur2) BlockSize() int           { return 4 }

var hashers = map[string]func() hash.Hash32{
	"fnv1a":   fnv.New32a,
	"murmur2": func() hash.Hash32 { return new(murmur2) },
}

func check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func main() {
	broker := flag.String("broker", "", "address")
	group := flag.String("group", "", "of the processor; its table is <group>-table")
	input := flag.String("input", "", "stream of strings")
	table := flag.String("table", "", "of the other library: numbers, as text")
	output := flag.String("output", "", "stream of what was joined")
	partitioner := flag.String("partitioner", "fnv1a", "fnv1a or murmur2")
	state := flag.String("state", "", "folder")
	keys := flag.String("keys", "", "that the view is asked for, with commas between")
	flag.Parse()
	hasher := hashers[*partitioner]

	settings := goka.DefaultConfig()
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	goka.ReplaceGlobalConfig(settings)
	topics := goka.NewTopicManagerConfig()
	topics.Table.Replication = 1

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	view, err := goka.NewView([]string{*broker}, goka.Table(*table), new(codec.Int64), goka.WithViewHasher(hasher),
		goka.WithViewStorageBuilder(storage.DefaultBuilder(filepath.Join(*state, "view"))))
	check(err)
	go func() { check(view.Run(ctx)) }()
	for !view.Recovered() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	for _, key := range strings.Split(*keys, ",") {
		value, err := view.Get(key)
		check(err)
		fmt.Println("view", key, value)
	}

	handle := func(ctx goka.Context, message any) {
		count, _ := ctx.Value().(int64)
		ctx.SetValue(count + 1)
		ctx.Emit(goka.Stream(*output), ctx.Key(), fmt.Sprintf("%v joined %v", message, ctx.Join(goka.Table(*table))))
	}
	graph := goka.DefineGroup(goka.Group(*group),
		goka.Input(goka.Stream(*input), new(codec.String), handle),
		goka.Join(goka.Table(*table), new(codec.Int64)),
		goka.Output(goka.Stream(*output), new(codec.String)),
		goka.Persist(new(codec.Int64)))
	processor, err := goka.NewProcessor([]string{*broker}, graph, goka.WithHasher(hasher),
		goka.WithStorageBuilder(storage.DefaultBuilder(filepath.Join(*state, "processor"))),
		goka.WithTopicManagerBuilder(goka.TopicManagerBuilderWithConfig(settings, topics)))
	check(err)
	check(processor.Run(ctx))
}

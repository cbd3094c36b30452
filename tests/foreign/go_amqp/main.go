// A client on go-amqp, told what to do in JSON lines: one request a line on stdin, its one answer a line on stdout.
//
// Owns connections and links by the names that the test gave them. Every wait has a deadline. It is told the same things
// as rhea's, except that go-amqp has no means of its own to reconnect.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	waitMs         = 20000
	inlineBytesMax = 4096
	patternLength  = 251
	lineBytesMax   = 1 << 26
)

type request struct {
	Do, Name, Connection, Link, From, To string
	User, Password, Selector             string
	Address                              *string
	Port, Count, Credit                  int
	MoreCredit                           int `json:"more_credit"`
	WaitMs                               int `json:"wait_ms"`
	Durable                              int
	ExpiryPolicy                         string                 `json:"expiry_policy"`
	DistributionMode                     string                 `json:"distribution_mode"`
	Container                            string                 `json:"container_id"`
	SettleMode                           *amqp.SenderSettleMode `json:"settle_mode"`
	Capabilities                         []string
	Dynamic, Settled                     bool
	Outcome                              *string
	Messages                             []row
}

type row struct {
	Kind, Body    string
	Size          int
	Durable       *bool
	Priority      *uint8
	TTL           uint32
	To            *string
	ReplyTo       *string `json:"reply_to"`
	Subject       *string
	GroupID       *string `json:"group_id"`
	CorrelationID any     `json:"correlation_id"`
	MessageID     any     `json:"message_id"`
	Properties    map[string]any
	Annotations   map[string]any
}

type connection struct {
	conn    *amqp.Conn
	session *amqp.Session
}

type answer map[string]any

type client struct {
	connections map[string]connection
	senders     map[string]*amqp.Sender
	receivers   map[string]*amqp.Receiver
}

func main() {
	made := empty()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), lineBytesMax)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		// Absent is not the same as zero for these two.
		asked := request{Credit: 100, Count: 1}
		found, err := answer(nil), json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			found, err = made.perform(asked)
		}
		if err != nil {
			found = answer{"failed_request": err.Error()}
		} else if found == nil {
			found = answer{}
		}
		if err := out.Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func empty() client {
	return client{map[string]connection{}, map[string]*amqp.Sender{}, map[string]*amqp.Receiver{}}
}

func (c *client) perform(asked request) (answer, error) {
	wait := waitMs
	if asked.WaitMs > 0 {
		wait = asked.WaitMs
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(wait)*time.Millisecond)
	defer cancel()
	switch asked.Do {
	case "connect":
		return c.connect(ctx, asked)
	case "sender":
		return c.sender(ctx, asked)
	case "receiver":
		return c.receiver(ctx, asked)
	case "send":
		return c.send(ctx, asked)
	case "receive":
		return c.receive(ctx, asked)
	case "forward":
		return c.forward(ctx, asked)
	case "drain":
		return nil, c.receivers[asked.Link].DrainCredit(ctx, nil)
	case "close":
		return nil, c.close(ctx, asked.Name)
	case "reset":
		return nil, c.reset()
	}
	return nil, fmt.Errorf("nobody knows how to do %s", asked.Do)
}

// -- what is owned ----------------------------------------------------------------------------------------------------

func (c *client) connect(ctx context.Context, asked request) (answer, error) {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(asked.User, asked.Password), ContainerID: asked.Container}
	conn, err := amqp.Dial(ctx, fmt.Sprintf("amqp://127.0.0.1:%d", asked.Port), options)
	if err != nil {
		return nil, err
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	c.connections[asked.Name] = connection{conn, session}
	return answer{"properties": conn.Properties()}, nil
}

func (c *client) sender(ctx context.Context, asked request) (answer, error) {
	options := &amqp.SenderOptions{
		Name: asked.Name, TargetCapabilities: asked.Capabilities, DynamicAddress: asked.Dynamic,
	}
	if asked.Settled {
		options.SettlementMode = amqp.SenderSettleModeSettled.Ptr()
	}
	made, err := c.connections[asked.Connection].session.NewSender(ctx, text(asked.Address), options)
	if err != nil {
		return nil, err
	}
	c.senders[asked.Link] = made
	return answer{"address": made.Address()}, nil
}

func (c *client) receiver(ctx context.Context, asked request) (answer, error) {
	options := &amqp.ReceiverOptions{
		Name: asked.Name, SourceCapabilities: asked.Capabilities, DynamicAddress: asked.Dynamic,
		SourceDurability: amqp.Durability(asked.Durable), Credit: int32(asked.Credit),
		SourceExpiryPolicy:     amqp.ExpiryPolicy(asked.ExpiryPolicy),
		SourceDistributionMode: amqp.SourceDistributionMode(asked.DistributionMode), RequestedSenderSettleMode: asked.SettleMode,
	}
	if asked.Credit == 0 {
		options.Credit = -1 // nothing comes before it is asked for
	}
	if asked.Selector != "" {
		options.Filters = []amqp.LinkFilter{amqp.NewSelectorFilter(asked.Selector)}
	}
	made, err := c.connections[asked.Connection].session.NewReceiver(ctx, text(asked.Address), options)
	if err != nil {
		return nil, err
	}
	c.receivers[asked.Link] = made
	return answer{"address": made.Address()}, nil
}

func (c *client) close(ctx context.Context, name string) error {
	if found, ok := c.receivers[name]; ok {
		delete(c.receivers, name)
		return found.Close(ctx)
	}
	if found, ok := c.senders[name]; ok {
		delete(c.senders, name)
		return found.Close(ctx)
	}
	if found, ok := c.connections[name]; ok {
		delete(c.connections, name)
		return found.conn.Close()
	}
	return fmt.Errorf("there is nothing of the name %s", name)
}

func (c *client) reset() error {
	for _, each := range c.connections {
		if err := each.conn.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "while closing:", err)
		}
	}
	*c = empty()
	return nil
}

// -- messages out -----------------------------------------------------------------------------------------------------

func (c *client) send(ctx context.Context, asked request) (answer, error) {
	outcomes := []answer{}
	for _, each := range asked.Messages {
		message, err := made(each)
		if err != nil {
			return nil, err
		}
		outcome, err := sent(ctx, c.senders[asked.Link], message)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, outcome)
	}
	return answer{"outcomes": outcomes}, nil
}

// A rejection is an outcome; anything else that goes wrong fails the request.
func sent(ctx context.Context, link *amqp.Sender, message *amqp.Message) (answer, error) {
	err := link.Send(ctx, message, nil)
	var refused *amqp.Error
	if errors.As(err, &refused) {
		return answer{"outcome": "rejected", "error": string(refused.Condition)}, nil
	}
	return answer{"outcome": "accepted"}, err
}

func made(said row) (*amqp.Message, error) {
	body, err := bodyOf(said)
	if err != nil {
		return nil, err
	}
	message := &amqp.Message{
		Header: &amqp.MessageHeader{
			Durable: said.Durable == nil || *said.Durable, Priority: 4, TTL: time.Duration(said.TTL) * time.Millisecond,
		},
		Properties: &amqp.MessageProperties{
			MessageID: said.MessageID, CorrelationID: whole(said.CorrelationID), To: said.To, ReplyTo: said.ReplyTo,
			Subject: said.Subject, GroupID: said.GroupID,
		},
	}
	if said.Priority != nil {
		message.Header.Priority = *said.Priority
	}
	if body == nil {
		message.Value = said.Body
	} else {
		message.Data = [][]byte{body}
	}
	if said.Properties != nil {
		message.ApplicationProperties = map[string]any{}
		for name, value := range said.Properties {
			message.ApplicationProperties[name] = whole(value)
		}
	}
	if said.Annotations != nil {
		message.Annotations = amqp.Annotations{}
		for name, value := range said.Annotations {
			message.Annotations[name] = whole(value)
		}
	}
	return message, nil
}

// Nothing for a text.
func bodyOf(said row) ([]byte, error) {
	if said.Size > 0 {
		body := make([]byte, said.Size)
		for at := range body {
			body[at] = byte(at % patternLength)
		}
		return body, nil
	}
	if said.Kind == "bytes" {
		return base64.StdEncoding.DecodeString(said.Body)
	}
	return nil, nil
}

// JSON has floats alone; what is whole was meant to be.
func whole(value any) any {
	if number, ok := value.(float64); ok && number == float64(int64(number)) {
		return int64(number)
	}
	return value
}

// -- messages in ------------------------------------------------------------------------------------------------------

// Fewer than were asked for are not an error: what came, came.
func (c *client) receive(ctx context.Context, asked request) (answer, error) {
	link := c.receivers[asked.Link]
	if asked.MoreCredit > 0 {
		if err := link.IssueCredit(uint32(asked.MoreCredit)); err != nil {
			return nil, err
		}
	}
	found := []answer{}
	for len(found) < asked.Count {
		message, err := link.Receive(ctx, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		found = append(found, described(message))
		if err := dispose(link, message, asked.Outcome); err != nil {
			return nil, err
		}
	}
	return answer{"messages": found}, nil
}

func dispose(link *amqp.Receiver, message *amqp.Message, outcome *string) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitMs*time.Millisecond)
	defer cancel()
	switch text(outcome) {
	case "", "accept":
		return link.AcceptMessage(ctx, message)
	case "reject":
		return link.RejectMessage(ctx, message, &amqp.Error{Condition: "test:unwanted", Description: "not wanted"})
	case "release":
		return link.ReleaseMessage(ctx, message)
	case "modify-failed":
		return link.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true})
	case "hold":
		return nil
	}
	return fmt.Errorf("%s is no outcome", *outcome)
}

// Messages are sent on as they came, decoded and encoded again.
func (c *client) forward(ctx context.Context, asked request) (answer, error) {
	from, outcomes := c.receivers[asked.From], []answer{}
	for len(outcomes) < asked.Count {
		message, err := from.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		outcome, err := sent(ctx, c.senders[asked.To], message)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, outcome)
		if err := from.AcceptMessage(ctx, message); err != nil {
			return nil, err
		}
	}
	return answer{"outcomes": outcomes}, nil
}

func described(message *amqp.Message) answer {
	said := answer{
		"properties": message.ApplicationProperties, "annotations": named(message.Annotations), "durable": false,
		"priority": 4, "delivery_count": 0,
	}
	if header := message.Header; header != nil {
		said["durable"], said["priority"], said["delivery_count"] = header.Durable, header.Priority, header.DeliveryCount
	}
	if found := message.Properties; found != nil {
		said["message_id"], said["correlation_id"], said["to"] = found.MessageID, found.CorrelationID, found.To
		said["reply_to"], said["subject"], said["group_id"] = found.ReplyTo, found.Subject, found.GroupID
	}
	if message.Data == nil {
		said["body"] = message.Value
		return said
	}
	body := []byte{}
	for _, part := range message.Data {
		body = append(body, part...)
	}
	sum := sha256.Sum256(body)
	said["size"], said["sha256"], said["body"] = len(body), hex.EncodeToString(sum[:]), nil
	if len(body) <= inlineBytesMax {
		said["body"] = base64.StdEncoding.EncodeToString(body)
	}
	return said
}

func named(annotations amqp.Annotations) answer {
	found := answer{}
	for name, value := range annotations {
		found[fmt.Sprint(name)] = value
	}
	return found
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

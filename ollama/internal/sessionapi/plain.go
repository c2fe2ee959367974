package sessionapi

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// jsonSuffix ends the names of fields that hold JSON as text.
const jsonSuffix = "_json"

// WritePlain writes one message as one line for programs such as jq: as Write does, but numbers of 64 bits are numbers,
// not text, and beside each field that holds JSON as text stands what it says, under the name without the ending: plan
// beside plan_json.
func WritePlain(w io.Writer, message proto.Message) {
	value, err := plain(message)
	if err == nil {
		err = writeLine(w, value)
	}
	if err != nil {
		slog.Debug("session_answer_not_sent", "error", err)
	}
}

func writeLine(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

func plain(message proto.Message) (any, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	value, err := decoded(text)
	if fields, ok := value.(map[string]any); ok {
		mend(fields, message.ProtoReflect().Descriptor())
	}
	return value, err
}

// decoded keeps numbers as they are written.
func decoded(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func mend(fields map[string]any, described protoreflect.MessageDescriptor) {
	for i := range described.Fields().Len() {
		field := described.Fields().Get(i)
		name := string(field.Name())
		value, ok := fields[name]
		if !ok {
			continue
		}
		fields[name] = each(value, field, mended)
		if short, is := strings.CutSuffix(name, jsonSuffix); is {
			fields[short] = each(value, field, said)
		}
	}
}

// each maps a field's value, or all in its list or map.
func each(value any, field protoreflect.FieldDescriptor, change func(any, protoreflect.FieldDescriptor) any) any {
	switch many := value.(type) {
	case []any:
		changed := make([]any, len(many))
		for i, one := range many {
			changed[i] = change(one, field)
		}
		return changed
	case map[string]any:
		if !field.IsMap() {
			break
		}
		changed := make(map[string]any, len(many))
		for key, one := range many {
			changed[key] = change(one, field.MapValue())
		}
		return changed
	}
	return change(value, field)
}

func mended(value any, field protoreflect.FieldDescriptor) any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		fields, is := value.(map[string]any)
		if !is {
			return value
		}
		mend(fields, field.Message())
	case protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		if text, is := value.(string); is {
			return json.Number(text)
		}
	}
	return value
}

// said is what a text says that is JSON; null where there is none, or it can't be read.
func said(text any, _ protoreflect.FieldDescriptor) any {
	written, is := text.(string)
	if !is {
		return nil
	}
	value, err := decoded([]byte(written))
	if err != nil {
		return nil
	}
	return value
}

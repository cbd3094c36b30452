// A client on rhea, told what to do in JSON lines: one request a line on stdin, its one answer a line on stdout.
//
// Owns connections and links by the names that the test gave them. Between requests rhea goes on working, so heartbeats
// and flows are sent as an application's would be. Every wait has a deadline.
'use strict';

const crypto = require('crypto');
const readline = require('readline');
const rhea = require('rhea');

const WAIT_MS = 20000;
const INLINE_BYTES_MAX = 4096;
const PATTERN_LENGTH = 251;
const OUTCOMES = ['accepted', 'rejected', 'released', 'modified'];

let connections = {};
let links = {};

// -- waiting -----------------------------------------------------------------------------------------------------------

function until(isDone, what, waitMs = WAIT_MS) {
    const deadlineMs = Date.now() + waitMs;
    return new Promise((resolve, reject) => {
        (function look() {
            let found;
            try {
                found = isDone();
            } catch (fault) {
                return reject(fault);
            }
            if (found) {
                return resolve(true);
            }
            if (Date.now() >= deadlineMs) {
                return what ? reject(new Error(`${what}: nothing after ${waitMs} ms`)) : resolve(false);
            }
            return setTimeout(look, 2);
        })();
    });
}

function refusal(error) {
    return error ? new Error(`${error.condition}: ${error.description || ''}`) : null;
}

// -- requests ----------------------------------------------------------------------------------------------------------

async function connect(request) {
    const container = rhea.create_container(request.container_id ? { id: request.container_id } : {});
    const state = { opened: 0, closed: 0, failure: null };
    // Without listeners rhea throws what nobody hears.
    for (const name of ['session_error', 'receiver_error', 'sender_error', 'error']) {
        container.on(name, () => {});
    }
    container.on('connection_error', (context) => {
        state.failure = context.error || context.connection.error || context.connection.transport_error;
    });
    container.on('disconnected', () => {
        state.closed += 1;
        lost(state);
    });
    container.on('connection_open', () => { state.opened += 1; });
    container.on('connection_close', () => { state.closed += 1; });
    const connection = container.connect({
        host: '127.0.0.1', port: request.port, username: request.user, password: request.password,
        reconnect: Boolean(request.reconnect), initial_reconnect_delay: 50, max_reconnect_delay: 200,
        ...(request.idle_time_out ? { idle_time_out: request.idle_time_out } : {}),
    });
    connections[request.name] = { connection, state };
    await until(() => {
        if (state.opened === 0 && (state.failure || state.closed)) {
            throw refusal(state.failure || { condition: 'closed' });
        }
        return state.opened;
    }, 'open');
    const open = connection.remote.open;
    return { offered: open.offered_capabilities, properties: open.properties, idle_time_out: open.idle_time_out };
}

function lost(state) {
    for (const link of Object.values(links).filter((each) => each.state === state)) {
        for (const waiting of link.waiting.values()) {
            waiting.outcome = 'unknown';
        }
        link.waiting.clear();
        link.inbox.length = 0;
    }
}

function terminus(request) {
    const made = { address: request.address };
    for (const name of ['capabilities', 'durable', 'expiry_policy', 'distribution_mode', 'dynamic']) {
        if (request[name] !== undefined) {
            made[name] = request[name];
        }
    }
    if (request.default_outcome !== undefined) {
        made.default_outcome = rhea.message[request.default_outcome]().described();
    }
    if (request.selector !== undefined) {
        made.filter = rhea.filter.selector(request.selector);
    }
    return made;
}

function own(request, link, owner) {
    links[request.link] = { link, state: owner.state, inbox: [], waiting: new Map(), held: [], last: null };
    return links[request.link];
}

async function attached(link, kind) {
    let isOpen = false;
    let error = null;
    link.on(`${kind}_open`, () => { isOpen = true; });
    link.on(`${kind}_error`, (context) => { error = context[kind].error; });
    link.on(`${kind}_close`, () => {});
    await until(() => {
        if (error) {
            throw refusal(error);
        }
        const answer = link.remote.attach;
        return isOpen && answer && (kind === 'sender' ? answer.target : answer.source);
    }, 'attach');
    const answer = kind === 'sender' ? link.target : link.source;
    return { address: answer.address };
}

async function sender(request) {
    const owner = connections[request.connection];
    const options = { target: terminus(request), autosettle: true };
    if (request.settled) {
        options.snd_settle_mode = 1;
    }
    if (request.name) {
        options.name = request.name;
    }
    const link = owner.connection.open_sender(options);
    const state = own(request, link, owner);
    for (const outcome of OUTCOMES) {
        link.on(outcome, (context) => {
            const waiting = state.waiting.get(context.delivery.id);
            if (waiting) {
                const remote = context.delivery.remote_state;
                waiting.outcome = outcome;
                waiting.error = remote && remote.error ? remote.error.condition : null;
                state.waiting.delete(context.delivery.id);
            }
        });
    }
    return attached(link, 'sender');
}

async function receiver(request) {
    const owner = connections[request.connection];
    const options = { source: terminus(request), credit_window: 0, autoaccept: false, autosettle: false };
    if (request.name) {
        options.name = request.name;
    }
    const link = owner.connection.open_receiver(options);
    const state = own(request, link, owner);
    link.on('message', (context) => { state.inbox.push({ message: context.message, delivery: context.delivery }); });
    const answer = await attached(link, 'receiver');
    link.add_credit(request.credit === undefined ? 100 : request.credit);
    return answer;
}

async function send(request) {
    const messages = request.messages.map(made);
    return { outcomes: await sendAll(links[request.link], messages) };
}

async function sendAll(state, messages) {
    const results = [];
    for (const message of messages) {
        await until(() => state.link.is_open() && state.link.sendable(), 'credit');
        const result = { outcome: 'settled', error: null };
        const delivery = state.link.send(message);
        if (!delivery.settled) {
            result.outcome = null;
            state.waiting.set(delivery.id, result);
        }
        results.push(result);
    }
    await until(() => state.waiting.size === 0, 'outcomes');
    return results;
}

/** Takes messages as they came and sends them on, decoded and encoded again. */
async function forward(request) {
    const from = links[request.from];
    await until(() => from.inbox.length >= request.count, 'messages');
    const taken = from.inbox.splice(0, request.count);
    const outcomes = await sendAll(links[request.to], taken.map((each) => retyped(each.message)));
    taken.forEach((each) => each.delivery.accept());
    return { outcomes };
}

/** JavaScript has one type of number. These annotations are bytes, and Qpid JMS takes nothing else. */
function retyped(message) {
    for (const name of ['x-opt-jms-msg-type', 'x-opt-jms-dest']) {
        if (message.message_annotations && message.message_annotations[name] !== undefined) {
            message.message_annotations[name] = rhea.types.wrap_byte(message.message_annotations[name]);
        }
    }
    return message;
}

async function receive(request) {
    const state = links[request.link];
    const count = request.count || 1;
    if (request.more_credit) {
        state.link.add_credit(request.more_credit);
    }
    await until(() => state.inbox.length >= count, '', request.wait_ms || WAIT_MS);
    const taken = state.inbox.splice(0, count);
    for (const each of taken) {
        dispose(state, each, request.outcome === undefined ? 'accept' : request.outcome);
    }
    return { messages: taken.map((each) => described(each.message)) };
}

function dispose(state, each, outcome) {
    if (outcome === null) {
        state.held.push(each);
    } else if (outcome === 'none') {
        each.delivery.update(true);
    } else if (outcome === 'accept') {
        each.delivery.accept();
    } else if (outcome === 'reject') {
        each.delivery.reject({ condition: 'test:unwanted', description: 'not wanted' });
    } else if (outcome === 'release') {
        each.delivery.release();
    } else {
        each.delivery.release({ delivery_failed: true });
    }
}

async function close(request) {
    const owner = connections[request.name];
    const link = owner ? owner.connection : links[request.name].link;
    if (request.is_detach) {
        link.detach();
    } else {
        link.close();
    }
    await until(() => !link.is_open() && (owner ? owner.state.closed : link.is_closed() || request.is_detach), 'close');
    delete (owner ? connections : links)[request.name];
    return {};
}

async function reset() {
    const all = Object.values(connections);
    all.forEach((each) => {
        each.connection.set_reconnect(false);
        each.connection.close();
    });
    await until(() => all.every((each) => each.state.closed), '', 2000);
    connections = {};
    links = {};
    return {};
}

async function opened(request) {
    const state = connections[request.name].state;
    await until(() => state.opened >= request.count, 'open again');
    return {};
}

// -- messages ----------------------------------------------------------------------------------------------------------

function made(row) {
    const message = { durable: row.durable === undefined ? true : row.durable };
    if (row.size !== undefined) {
        const body = Buffer.allocUnsafe(row.size);
        for (let at = 0; at < row.size; at += 1) {
            body[at] = at % PATTERN_LENGTH;
        }
        message.body = rhea.message.data_section(body);
    } else if (row.kind === 'bytes') {
        message.body = rhea.message.data_section(Buffer.from(row.body, 'base64'));
    } else {
        message.body = row.body;
    }
    for (const name of ['priority', 'ttl', 'to', 'reply_to', 'correlation_id', 'message_id', 'group_id', 'subject']) {
        if (row[name] !== undefined) {
            message[name] = row[name];
        }
    }
    if (row.properties) {
        message.application_properties = row.properties;
    }
    if (row.annotations) {
        message.message_annotations = row.annotations;
    }
    return message;
}

function described(message) {
    const row = {
        durable: Boolean(message.durable), priority: message.priority === undefined ? 4 : message.priority,
        delivery_count: message.delivery_count || 0, properties: message.application_properties || {},
        annotations: message.message_annotations || {},
    };
    for (const name of ['message_id', 'to', 'reply_to', 'correlation_id', 'group_id', 'subject', 'ttl']) {
        row[name] = message[name] === undefined ? null : message[name];
    }
    const isData = message.body && message.body.typecode === 0x75;
    const content = isData ? message.body.content : message.body;
    if (isData) {
        const body = Array.isArray(content) ? Buffer.concat(content) : content;
        row.size = body.length;
        row.sha256 = crypto.createHash('sha256').update(body).digest('hex');
        row.body = body.length > INLINE_BYTES_MAX ? null : body.toString('base64');
    } else {
        row.body = content === undefined ? null : content;
    }
    return row;
}

// -- serving -----------------------------------------------------------------------------------------------------------

const DOINGS = { connect, sender, receiver, send, receive, forward, close, reset, opened };

async function answer(line) {
    const request = JSON.parse(line);
    try {
        return await DOINGS[request.do](request);
    } catch (fault) {
        return { failed_request: fault.message };
    }
}

async function serve() {
    for await (const line of readline.createInterface({ input: process.stdin })) {
        process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
    }
    process.exit(0);
}

serve();

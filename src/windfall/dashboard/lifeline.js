// One life of a job, over all its attempts, as a line: what it waited for, started, restored, ran, was given notice,
// saved, lost. `life` makes the parts from the records, and the drawing only draws them; `moments` tells the same as
// a list.

import {useRef} from "./vendor/hooks.js"
import {Cursor, axis, timeTicks, usePointer} from "./curves.js"
import {html, useWidth} from "./parts.js"
import {bytes, clock, count, num, span} from "./words.js"

const LOOKS = {
	waiting: "waits",
	preparing: "is prepared",
	restoring: "restores",
	starting: "starts",
	running: "runs",
	notice: "has notice, saves",
	flushing: "stores what it left",
	lost: "work that was lost",
}

// {parts: [{kind, from, to, words, attempt}], marks: [{at, step, bytes, attempt}], ends: [{at, words, bad, attempt}]}
export function life(page, now, cost) {
	const {row, attempts, reasons = []} = page,
		parts = [],
		marks = [],
		ends = []
	const add = (kind, from, to, words, attempt) =>
		from != null && to != null && to > from && parts.push({kind, from, to, words, attempt})
	const waits = (from, to) => {
		const during = reasons.filter(r => r.at < to && (r.untilAt ?? to) > from)
		let at = from
		for (const [i, reason] of during.entries()) {
			const until = Math.min(to, during[i + 1]?.at ?? to)
			if (i === 0 && reason.at > at) add("waiting", at, Math.min(reason.at, until), "waits")
			add("waiting", Math.max(at, reason.at), until, reason.text)
			at = Math.max(at, until)
		}
		if (!during.length) add("waiting", from, to, "waits")
	}
	let free = row.createdAt
	for (const a of attempts) {
		const end = a.stoppedAt ?? now,
			exit = a.exitedAt ?? end,
			begun = a.startedAt ?? end
		if (a.placedAt - free > 200 || free === row.createdAt) waits(free, a.placedAt)
		const what = a.restored ? "restoring" : "preparing"
		if (a.preparedAt)
			add(what, a.placedAt, a.preparedAt, a.restored ? `restores ${markWords(a.restored)}` : "is prepared", a.number)
		add("starting", a.preparedAt ?? a.placedAt, begun, a.startedAt ? "starts" : (a.doing ?? "starts"), a.number)
		const lost = cost?.attempts?.find(entry => entry.number === a.number)?.ms.lost ?? 0
		const told = a.stopAt && a.stopAt > begun && a.stopAt < exit ? a.stopAt : exit
		if (a.startedAt) {
			add(
				"running",
				begun,
				told,
				`runs${a.instanceType ? ` on ${a.instanceType}` : ""}${a.market ? `, ${a.market}` : ""}`,
				a.number,
			)
			add("notice", told, exit, a.stopWords ?? "has notice", a.number)
			if (lost > 500) add("lost", Math.max(begun, exit - lost), exit, `${span(lost)} of work lost`, a.number)
			if (a.exitedAt) add("flushing", a.exitedAt, end, "stores what it left", a.number)
		}
		for (const [at, , step, size] of a.marks ??
			(a.checkpoint ? [[a.checkpoint.at, 0, a.checkpoint.step, a.checkpoint.bytes]] : []))
			marks.push({at, step, bytes: size, attempt: a.number})
		if (a.stoppedAt) ends.push({at: exit, attempt: a.number, bad: a.exitCode !== 0, words: endWords(a)})
		free = end
	}
	if (!row.stoppedAt) {
		if (!attempts.length || attempts.at(-1).stoppedAt) waits(free, now)
	} else if (!attempts.length) waits(free, row.stoppedAt)
	return {parts, marks, ends}
}

export const markWords = mark =>
	mark == null
		? "-"
		: `${mark.step != null ? `step ${num(mark.step)}` : (mark.name ?? "a checkpoint")} (${bytes(mark.bytes)})`
const endWords = a =>
	[a.stopWords, a.exitCode != null && `exit code ${a.exitCode}`, a.reason ?? (a.exitCode == null && a.statusReason)]
		.filter(Boolean)
		.join(", ") || "ended"

// The same as events, newest first.
export function moments(page, now) {
	const {parts, marks, ends} = life(page, now)
	return [
		...parts
			.filter(p => p.kind !== "lost")
			.map(p => ({at: p.from, what: LOOKS[p.kind], words: p.words, attempt: p.attempt, length: p.to - p.from})),
		...marks.map(m => ({at: m.at, what: "▲ checkpoint is safe", words: markWords(m), attempt: m.attempt})),
		...ends.map(e => ({
			at: e.at,
			what: e.bad ? "! attempt ended" : "✓ attempt ended",
			words: e.words,
			attempt: e.attempt,
		})),
		...(page.priorityChanges ?? []).map(c => ({
			at: c.at,
			what: "priority changed",
			words: `from ${c.was} to ${c.priority} by ${c.by}`,
		})),
		{at: page.row.createdAt, what: "submitted", words: `to ${page.row.queue}`, attempt: null},
	].sort((a, b) => b.at - a.at)
}

export function LifeLine({page, cost, from, to, now, zoom, chosen, choose}) {
	const ref = useRef(),
		width = useWidth(ref),
		{x} = axis(from, to, width),
		{parts, marks, ends} = life(page, now, cost)
	const {start, handlers} = usePointer(ref, from, to, width, zoom)
	const inside = p => p.to > from && p.from < to,
		left = at => Math.max(x(from), x(at)),
		right = at => Math.min(x(to), x(at))
	const end = page.expectedEnd
	const keys = event => {
		const length = to - from,
			middle = (from + to) / 2
		const moves = {
			w: [middle - length / 4, middle + length / 4],
			s: [middle - length, middle + length],
			a: [from - length / 4, to - length / 4],
			d: [from + length / 4, to + length / 4],
			0: [null, null],
		}
		if (!(event.key in moves)) return
		event.preventDefault()
		event.stopPropagation()
		zoom(...moves[event.key])
	}
	const words = `${count(page.attempts.length, "attempt")}, ${count(marks.length, "checkpoint")} in safety. ${parts
		.map(p => `${LOOKS[p.kind]} ${span(p.to - p.from)}`)
		.slice(-12)
		.join(", ")}.`
	return html`<div class=life ref=${ref} tabindex="0" role="group" aria-label="life line; keys w a s d zoom and move, 0 shows all" onKeyDown=${keys} onDblClick=${() => zoom(null, null)} ...${handlers}>
		<p class=sr>${words}</p>
		${
			width > 0 &&
			html`<svg width=${width} height="78" aria-hidden="true">
			<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" class=p-lost-ink /></pattern></defs>
			${timeTicks(from, to, width).map(([at, text]) => html`<g class=tick><line x1=${x(at)} x2=${x(at)} y1="16" y2="78" /><text x=${x(at)} y="11">${text}</text></g>`)}
			${page.attempts.map(a => {
				const to_ = a.stoppedAt ?? now
				return (
					inside({from: a.placedAt, to: to_}) &&
					html`<g class="try ${a.number === chosen ? "chosen" : ""}" onClick=${() => choose(a.number)}><rect x=${left(a.placedAt)} y="18" width=${Math.max(2, right(to_) - left(a.placedAt))} height="14" /><text x=${left(a.placedAt) + 4} y="29">${right(to_) - left(a.placedAt) > 34 ? `try ${a.number}` : ""}</text></g>`
				)
			})}
			${parts.filter(inside).map(p => {
				const w = Math.max(1.5, right(p.to) - left(p.from))
				return html`<g class="part p-${p.kind}"><title>${clock(p.from)} ${p.words}, ${span(p.to - p.from)}</title><rect x=${left(p.from)} y=${p.kind === "waiting" ? 42 : 36} width=${w} height=${p.kind === "waiting" ? 10 : 22} />${w > 60 && p.kind !== "lost" && html`<text x=${left(p.from) + 6} y="51" textLength=${null}>${fit(p.kind === "waiting" ? p.words : LOOKS[p.kind], w)}</text>`}</g>`
			})}
			${marks.filter(m => m.at >= from && m.at <= to).map(m => html`<path class=mark d="M${x(m.at)} 60l5 9h-10z"><title>${clock(m.at)} ${markWords(m)}</title></path>`)}
			${ends.filter(e => e.at >= from && e.at <= to).map(e => html`<g class=${e.bad ? "end bad" : "end"}><title>${clock(e.at)} ${e.words}</title><line x1=${x(e.at)} x2=${x(e.at)} y1="33" y2="62" /><text x=${x(e.at)} y="75">${e.bad ? "!" : "✓"}</text></g>`)}
			${!page.row.stoppedAt && now <= to && html`<line class=now x1=${x(now)} x2=${x(now)} y1="16" y2="66" />`}
			${end && end.at < to && html`<g class=expected><title>expected end ${clock(end.at)}</title><line x1=${left(end.lowAt ?? end.at)} x2=${right(end.highAt ?? end.at)} y1="47" y2="47" /><circle cx=${x(end.at)} cy="47" r="4" /></g>`}
		</svg>`
		}<${Cursor} from=${from} to=${to} width=${width} start=${start} />
		<ul class=legend aria-hidden="true">${[...new Set(parts.map(p => p.kind))].map(kind => html`<li><i class="p-${kind}" />${LOOKS[kind]}</li>`)}${marks.length > 0 && html`<li>▲ checkpoint in safety</li>`}</ul></div>`
}

// As much of a text as fits; the whole is in its title and in the events.
const fit = (text, width) =>
	text.length * 6.2 < width - 8 ? text : text.slice(0, Math.max(0, Math.floor((width - 14) / 6.2))) + "…"

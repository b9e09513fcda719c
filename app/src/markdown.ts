// markdown.ts: the model's Markdown as safe HTML.

import DOMPurify from 'dompurify';
import { marked } from 'marked';

marked.use({ gfm: true, breaks: true, async: false, renderer: { checkbox: ({ checked }) => (checked ? '☑ ' : '☐ ') } });

// Links open elsewhere and say nothing about this page; images are not fetched, since nothing is sent anywhere.
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
    if (node.tagName === 'A') {
        node.setAttribute('target', '_blank');
        node.setAttribute('rel', 'noopener noreferrer');
    }
});

export function renderMarkdown(text: string): string {
    return DOMPurify.sanitize(marked.parse(text) as string, { FORBID_TAGS: ['img', 'style', 'form', 'input', 'iframe', 'video', 'audio'], FORBID_ATTR: ['style'] });
}

// A text cut between its top-level blocks, so that each is rendered by itself.
export interface Blocks {
    text: string;
    blocks: string[];
    nSettled: number;     // of the blocks: no text that follows can change them
    settledLength: number; // of the text
}

// Cuts a text. When it goes on from what was cut `before`, only what was not settled is looked at again: a long answer does not get
// slower. A block is settled by a later one whose first line is complete; until then that line may still become part of the earlier
// block ("2" the next item of a list as "2.", "#" no heading as "#tag").
export function cutBlocks(text: string, before?: Blocks): Blocks {
    text = text.replace(/\r\n?/g, '\n'); // as the lexer does
    const goesOn = before !== undefined && text.startsWith(before.text.slice(0, before.settledLength));
    const start = goesOn ? before.settledLength : 0;
    const blocks = goesOn ? before.blocks.slice(0, before.nSettled) : [];
    let at = start, settledLength = start, nSettled = blocks.length;
    for (const { type, raw } of marked.lexer(text.slice(start))) {
        if (type !== 'space' && text.includes('\n', at)) {
            settledLength = at;
            nSettled = blocks.length;
        }
        if (type !== 'space')
            blocks.push(raw);
        at += raw.length;
    }
    return { text, blocks, nSettled, settledLength };
}

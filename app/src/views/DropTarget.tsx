// DropTarget.tsx: files dropped anywhere: a model is copied into the browser, an exported conversation is added, an image or a
// sound goes to the message.

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { importConversation } from '../conversation-file';
import { importFile } from '../library';
import { go, page } from './App';
import { attach } from './Composer';

const hovering = signal(false);

const holdsFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes('Files') === true;

function take(files: File[]): void {
    const models = files.filter((file) => file.name.endsWith('.gguf'));
    const exported = files.filter((file) => file.name.endsWith('.json'));
    const media = files.filter((file) => !models.includes(file) && !exported.includes(file));
    if (models.length > 0)
        go('models');
    else if (page.value !== 'chat')
        go('chat');
    models.forEach((file) => void importFile(file));
    exported.forEach((file) => void importConversation(file));
    attach(media);
}

function onOver(event: DragEvent): void {
    if (!holdsFiles(event))
        return;
    event.preventDefault(); // otherwise the browser would leave the app and show the file
    hovering.value = true;
}

function onLeave(event: DragEvent): void {
    if (event.relatedTarget === null)
        hovering.value = false;
}

function onDrop(event: DragEvent): void {
    if (!holdsFiles(event))
        return;
    event.preventDefault();
    hovering.value = false;
    take([...event.dataTransfer!.files]);
}

export function DropTarget() {
    useEffect(() => {
        addEventListener('dragover', onOver);
        addEventListener('dragleave', onLeave);
        addEventListener('drop', onDrop);
        return () => {
            removeEventListener('dragover', onOver);
            removeEventListener('dragleave', onLeave);
            removeEventListener('drop', onDrop);
        };
    }, []);
    return hovering.value ? <div class="drop" aria-hidden="true">Drop images and sounds for the message, a model to keep, or a conversation</div> : null;
}

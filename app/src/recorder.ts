// recorder.ts: the microphone.

export interface Recording { stop(): Promise<Blob>; cancel(): void }

// Starts recording; the browser asks the user. Rejects when it is refused or there is no microphone.
export async function record(): Promise<Recording> {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } });
    const recorder = new MediaRecorder(stream);
    const pieces: Blob[] = [];
    const release = () => stream.getTracks().forEach((track) => track.stop());
    recorder.addEventListener('dataavailable', (event) => { pieces.push(event.data); });
    recorder.start();
    return {
        stop: () => new Promise((resolve) => {
            recorder.addEventListener('stop', () => {
                release();
                resolve(new Blob(pieces, { type: recorder.mimeType }));
            }, { once: true });
            recorder.stop();
        }),
        cancel: () => {
            recorder.stop();
            release();
        },
    };
}
